// The sum of grad-weight's partial sums: LANES threads for each element, each every LANES-th split, then one after the
// other. The order is fixed: the same input gives the same bits.
//
// Defines: T storage, LANES.

#define ELEMENTS (256 / LANES)

KERNEL(256) void sum_partials(const float* __restrict__ partials, T* __restrict__ grad_weight, i32 splits, i32 elements,
                              i32 channels, i32 kernel_w, i32 taps, i32 by_out, i32 by_in, i32 by_y, i32 by_x)
{
    alignas(16) SHARED float sums[LANES][ELEMENTS];
    const i32 t = (i32)thread_x(), lane = t / ELEMENTS, at = (i32)block_x() * ELEMENTS + t % ELEMENTS;
    float sum = 0.0f;
    if (at < elements)
        for (i32 split = lane; split < splits; split += LANES) sum += partials[(i64)split * elements + at];
    sums[lane][t % ELEMENTS] = sum;
    barrier();
    if (lane == 0 && at < elements) {
#pragma unroll
        for (i32 i = 1; i < LANES; ++i) sum += sums[i][t];
        const i32 c = at % channels, rest = at / channels, tap = rest % taps, o = rest / taps;
        grad_weight[(i64)o * by_out + (i64)c * by_in + tap / kernel_w * by_y + tap % kernel_w * by_x] = from_float<T>(sum);
    }
}
