// Forward pass of a convolution of few input channels, such as those of an image: a thread reads the CHANNELS * TAPS
// values under each of its two pixels once, and multiplies them with the weights of OUTPUTS channels in shared memory.
//
// Defines: T storage; KH, KW, SH, SW, PH, PW, DH, DW geometry; CHANNELS of the input; OUTPUTS of a thread, a multiple of
// four; OUT_LAST 1: outputs are contiguous and can be written four at a time; ACT and SLOPE of the activation.

#define TAPS (KH * KW)
#define THREADS 128
#define PIXELS 2

KERNEL(THREADS) void few_channels(
    const T* __restrict__ src, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ out,
    i32 batch, i32 out_h, i32 out_w, i32 src_h, i32 src_w, i32 outputs,
    i32 src_n, i32 src_c, i32 src_y, i32 src_x, i32 out_n, i32 out_c, i32 out_y, i32 out_x,
    i32 by_out, i32 by_in, i32 by_y, i32 by_x)
{
    alignas(16) SHARED float weights[CHANNELS * TAPS][OUTPUTS];
    const i32 t = (i32)thread_x(), n0 = (i32)block_y() * OUTPUTS;
    for (i32 i = t; i < CHANNELS * TAPS * OUTPUTS; i += THREADS) {
        const i32 n = i % OUTPUTS, row = i / OUTPUTS, c = row / TAPS, tap = row % TAPS;
        weights[row][n] = n0 + n < outputs ? to_float(weight[(i64)(n0 + n) * by_out + (i64)c * by_in + tap / KW * by_y + tap % KW * by_x]) : 0.0f;
    }
    barrier();
    const i32 area = out_h * out_w;
    const i64 all = (i64)batch * area, first = (i64)block_x() * (THREADS * PIXELS) + t;
    float sums[PIXELS][OUTPUTS];
    i64 origin[PIXELS], place[PIXELS];
    i32 top[PIXELS], left[PIXELS];
#pragma unroll
    for (i32 p = 0; p < PIXELS; ++p) {
        const i64 pixel = first + p * THREADS;
        const i32 sample = (i32)(pixel / area), rest = (i32)(pixel - (i64)sample * area), y = rest / out_w, x = rest - y * out_w;
        top[p] = pixel < all ? y * SH - PH : -(1 << 29);
        left[p] = x * SW - PW;
        origin[p] = (i64)sample * src_n + (i64)(y * SH - PH) * src_y + (i64)left[p] * src_x;
        place[p] = pixel < all ? (i64)sample * out_n + (i64)y * out_y + (i64)x * out_x : -1;
#pragma unroll
        for (i32 n = 0; n < OUTPUTS; ++n) sums[p][n] = bias && n0 + n < outputs ? to_float(bias[n0 + n]) : 0.0f;
    }
    for (i32 c = 0; c < CHANNELS; ++c) {
        float values[PIXELS][TAPS];
#pragma unroll
        for (i32 p = 0; p < PIXELS; ++p)
#pragma unroll
            for (i32 tap = 0; tap < TAPS; ++tap) {
                const i32 dy = tap / KW * DH, dx = tap % KW * DW;
                values[p][tap] = 0.0f;
                if ((u32)(top[p] + dy) < (u32)src_h && (u32)(left[p] + dx) < (u32)src_w)
                    values[p][tap] = to_float(src[origin[p] + (i64)c * src_c + (dy * src_y + dx * src_x)]);
            }
#pragma unroll
        for (i32 tap = 0; tap < TAPS; ++tap)
#pragma unroll
            for (i32 n = 0; n < OUTPUTS; n += 4) {
                const f4 w = load4(&weights[c * TAPS + tap][n]);
#pragma unroll
                for (i32 p = 0; p < PIXELS; ++p) {
                    sums[p][n] = fma_f(values[p][tap], w.x, sums[p][n]);
                    sums[p][n + 1] = fma_f(values[p][tap], w.y, sums[p][n + 1]);
                    sums[p][n + 2] = fma_f(values[p][tap], w.z, sums[p][n + 2]);
                    sums[p][n + 3] = fma_f(values[p][tap], w.w, sums[p][n + 3]);
                }
            }
    }
#pragma unroll
    for (i32 p = 0; p < PIXELS; ++p)
        if (place[p] >= 0) {
#pragma unroll
            for (i32 n = 0; n < OUTPUTS; ++n) sums[p][n] = activated<ACT>(sums[p][n], SLOPE);
#pragma unroll
            for (i32 n = 0; n < OUTPUTS; n += 4) {
#if OUT_LAST
                if (n0 + n < outputs)
                    store4f(out + place[p] + n0 + n, f4{sums[p][n], sums[p][n + 1], sums[p][n + 2], sums[p][n + 3]});
#else
#pragma unroll
                for (i32 v = 0; v < 4; ++v)
                    if (n0 + n + v < outputs) out[place[p] + (i64)(n0 + n + v) * out_c] = from_float<T>(sums[p][n + v]);
#endif
            }
        }
}
