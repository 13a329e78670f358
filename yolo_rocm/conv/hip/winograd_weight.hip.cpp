// A 3 x 3 weight as kernel winograd reads it: transformed, [place][channel][output], with zeros up to whole tiles.
//
// Defines: T storage; BACK 1 for grad-input: turned by half a turn, channels and outputs exchanged.

KERNEL(256) void winograd_weight(const T* __restrict__ weight, T* __restrict__ packed, i32 channels, i32 packed_channels,
                                 i32 outputs, i32 packed_outputs, i32 by_out, i32 by_in, i32 by_y, i32 by_x)
{
    const i32 at = (i32)(block_x() * 256u + thread_x()), size = packed_channels * packed_outputs;
    if (at >= size) return;
    const i32 n = at % packed_outputs, c = at / packed_outputs;
    float g[9];
#pragma unroll
    for (i32 i = 0; i < 9; ++i) {
        const i32 tap = BACK ? 8 - i : i;
        const i64 o = BACK ? c : n, in = BACK ? n : c;
        g[i] = n < outputs && c < channels ? to_float(weight[o * by_out + in * by_in + tap / 3 * by_y + tap % 3 * by_x]) : 0.0f;
    }
    float e[12];  // G g: four rows of three
#pragma unroll
    for (i32 i = 0; i < 3; ++i) {
        e[i] = g[i];
        e[3 + i] = 0.5f * (g[i] + g[3 + i] + g[6 + i]);
        e[6 + i] = 0.5f * (g[i] - g[3 + i] + g[6 + i]);
        e[9 + i] = g[6 + i];
    }
#pragma unroll
    for (i32 i = 0; i < 4; ++i) {
        const float a = e[3 * i], b = e[3 * i + 1], c3 = e[3 * i + 2];
        packed[(i64)(4 * i) * size + at] = from_float<T>(a);
        packed[(i64)(4 * i + 1) * size + at] = from_float<T>(0.5f * (a + b + c3));
        packed[(i64)(4 * i + 2) * size + at] = from_float<T>(0.5f * (a - b + c3));
        packed[(i64)(4 * i + 3) * size + at] = from_float<T>(c3);
    }
}
