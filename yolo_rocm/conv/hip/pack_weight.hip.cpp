// A weight in the order gather_gemm reads it, padded with zeros to whole tiles: [tap][channel][group][output].
//
// Forward: channel and output are the weight's second and first dimension (within a group); BACK 1: the other way round.
// Defines: T storage, BACK.

KERNEL(256) void pack_weight(const T* __restrict__ weight, T* __restrict__ packed, i32 elements, i32 taps, i32 kernel_w,
                             i32 channels, i32 packed_channels, i32 groups, i32 outputs, i32 packed_outputs,
                             i32 by_out, i32 by_in, i32 by_y, i32 by_x)  // strides of the weight
{
    const i32 at = (i32)(block_x() * 256u + thread_x());
    if (at >= elements) return;
    const i32 n = at % packed_outputs, rest = at / packed_outputs;
    const i32 group = rest % groups, row = rest / groups;
    const i32 c = row % packed_channels, tap = row / packed_channels;
    T value = from_float<T>(0.0f);
    if (n < outputs && c < channels) {
        const i64 o = BACK ? (i64)group * channels + c : (i64)group * outputs + n;
        const i64 i = BACK ? n : c;
        value = weight[o * by_out + i * by_in + tap / kernel_w * by_y + tap % kernel_w * by_x];
    }
    packed[at] = value;
}
