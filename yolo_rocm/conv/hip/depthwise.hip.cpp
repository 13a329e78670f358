// Depthwise convolution, one output channel for each input channel: forward, and grad-input without phases, because here
// memory sets the pace and a tap that does not meet a pixel costs a comparison.
//
// Defines: T storage; KH, KW, SH, SW, PH, PW, DH, DW geometry; BACK 1 for grad-input; LAST 1: channels are contiguous, and
// source and result can be read and written four at a time; PIXELS (LAST 1): pixels of a thread; ACT and SLOPE of the
// activation.

#define TAPS (KH * KW)
#define THREADS 256

#if LAST
#define QUADS 8                          // of channels in a block
#define LANES (THREADS / QUADS)          // pixels of a block at a time

KERNEL(THREADS) void depthwise(
    const T* __restrict__ src, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ out,
    i32 batch, i32 out_h, i32 out_w, i32 src_h, i32 src_w, i32 channels, i32 src_n, i32 src_c, i32 src_y, i32 src_x,
    i32 out_n, i32 out_c, i32 out_y, i32 out_x, i32 by_out, i32 by_y, i32 by_x, i32 blocks)
{
    alignas(16) SHARED float taps[TAPS][QUADS * 4];
    const i32 t = (i32)thread_x(), c0 = (i32)(block_x() % (u32)blocks) * QUADS * 4;
    for (i32 i = t; i < TAPS * QUADS * 4; i += THREADS) {
        const i32 tap = i / (QUADS * 4), c = c0 + i % (QUADS * 4);
        taps[tap][i % (QUADS * 4)] = c < channels ? to_float(weight[(i64)c * by_out + tap / KW * by_y + tap % KW * by_x]) : 0.0f;
    }
    barrier();
    const i32 c = c0 + t % QUADS * 4, area = out_h * out_w;
    if (c >= channels) return;
    f4 start = f4{0.0f, 0.0f, 0.0f, 0.0f};
    if (bias) start = f4{to_float(bias[c]), to_float(bias[c + 1]), to_float(bias[c + 2]), to_float(bias[c + 3])};
    for (i32 i = 0; i < PIXELS; ++i) {
        const i64 pixel = ((i64)(block_x() / (u32)blocks) * PIXELS + i) * LANES + t / QUADS;
        if (pixel >= (i64)batch * area) return;
        const i32 sample = (i32)(pixel / area), rest = (i32)(pixel - (i64)sample * area), y = rest / out_w, x = rest - y * out_w;
        const T* const from = src + (i64)sample * src_n + c;
        f4 sum = start;
#pragma unroll
        for (i32 tap = 0; tap < TAPS; ++tap) {
#if BACK
            const i32 up = y + PH - tap / KW * DH, over = x + PW - tap % KW * DW;
            const i32 sy = up / SH, sx = over / SW;
            const bool meets = up % SH == 0 && over % SW == 0;
#else
            const i32 sy = y * SH - PH + tap / KW * DH, sx = x * SW - PW + tap % KW * DW;
            const bool meets = true;
#endif
            if (meets && (u32)sy < (u32)src_h && (u32)sx < (u32)src_w) {
                const f4 v = load4f(from + (sy * src_y + sx * src_x)), w = load4(&taps[tap][t % QUADS * 4]);
                sum.x = fma_f(v.x, w.x, sum.x);
                sum.y = fma_f(v.y, w.y, sum.y);
                sum.z = fma_f(v.z, w.z, sum.z);
                sum.w = fma_f(v.w, w.w, sum.w);
            }
        }
        sum = f4{activated<ACT>(sum.x, SLOPE), activated<ACT>(sum.y, SLOPE), activated<ACT>(sum.z, SLOPE), activated<ACT>(sum.w, SLOPE)};
        store4f(out + (i64)sample * out_n + (y * out_y + x * out_x + c), sum);
    }
}

#else

KERNEL(THREADS) void depthwise(
    const T* __restrict__ src, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ out,
    i32 batch, i32 out_h, i32 out_w, i32 src_h, i32 src_w, i32 channels, i32 src_n, i32 src_c, i32 src_y, i32 src_x,
    i32 out_n, i32 out_c, i32 out_y, i32 out_x, i32 by_out, i32 by_y, i32 by_x, i32 blocks)
{
    const i32 plane = (i32)(block_x() / (u32)blocks), sample = plane / channels, c = plane - sample * channels;
    const i32 pixel = (i32)(block_x() % (u32)blocks) * THREADS + (i32)thread_x();
    const i32 y = pixel / out_w, x = pixel - y * out_w;
    if (pixel >= out_h * out_w) return;
    const T* const from = src + (i64)sample * src_n + (i64)c * src_c;
    const T* const taps = weight + (i64)c * by_out;
    float sum = bias ? to_float(bias[c]) : 0.0f;
#pragma unroll
    for (i32 tap = 0; tap < TAPS; ++tap) {
#if BACK
        const i32 up = y + PH - tap / KW * DH, over = x + PW - tap % KW * DW;
        const i32 sy = up / SH, sx = over / SW;
        const bool meets = up % SH == 0 && over % SW == 0;
#else
        const i32 sy = y * SH - PH + tap / KW * DH, sx = x * SW - PW + tap % KW * DW;
        const bool meets = true;
#endif
        if (meets && (u32)sy < (u32)src_h && (u32)sx < (u32)src_w)
            sum = fma_f(to_float(from[sy * src_y + sx * src_x]), to_float(taps[tap / KW * by_y + tap % KW * by_x]), sum);
    }
    out[(i64)sample * out_n + (i64)c * out_c + (y * out_y + x * out_x)] = from_float<T>(activated<ACT>(sum, SLOPE));
}
#endif
