// Grad-weight of a depthwise convolution: a thread adds for all taps of one channel, over a part of the pixels; the
// block's threads are then added one after the other, and its splits by sum_partials: the order is fixed.
//
// Defines: T storage; KH, KW, SH, SW, PH, PW, DH, DW geometry; LAST 1: neighbouring threads have neighbouring channels,
// otherwise neighbouring pixels of one channel.

#define TAPS (KH * KW)
#define THREADS 256
#define CHANNELS (LAST ? 32 : 1)        // of a block
#define LANES (THREADS / CHANNELS)      // pixels of a block at a time

KERNEL(THREADS) void depthwise_weight(
    const T* __restrict__ grad, const T* __restrict__ src, float* __restrict__ partials,
    i32 pixels, i32 split_pixels, i32 out_h, i32 out_w, i32 src_h, i32 src_w, i32 channels,
    i32 grad_n, i32 grad_c, i32 grad_y, i32 grad_x, i32 src_n, i32 src_c, i32 src_y, i32 src_x)
{
    SHARED float parts[THREADS];
    const i32 t = (i32)thread_x(), c = (i32)block_x() * CHANNELS + t % CHANNELS, lane = t / CHANNELS;
    const i32 split = (i32)block_y(), begin = split * split_pixels;
    const i32 end = begin + split_pixels < pixels ? begin + split_pixels : pixels;
    const i32 area = out_h * out_w;
    float sums[TAPS];
#pragma unroll
    for (i32 tap = 0; tap < TAPS; ++tap) sums[tap] = 0.0f;
    if (c < channels)
        for (i32 pixel = begin + lane; pixel < end; pixel += LANES) {
            const i32 sample = pixel / area, rest = pixel - sample * area, y = rest / out_w, x = rest - y * out_w;
            const float g = to_float(grad[(i64)sample * grad_n + (i64)c * grad_c + (y * grad_y + x * grad_x)]);
            const T* const from = src + (i64)sample * src_n + (i64)c * src_c;
#pragma unroll
            for (i32 tap = 0; tap < TAPS; ++tap) {
                const i32 sy = y * SH - PH + tap / KW * DH, sx = x * SW - PW + tap % KW * DW;
                if ((u32)sy < (u32)src_h && (u32)sx < (u32)src_w)
                    sums[tap] = fma_f(g, to_float(from[sy * src_y + sx * src_x]), sums[tap]);
            }
        }
#pragma unroll
    for (i32 tap = 0; tap < TAPS; ++tap) {
        parts[t] = sums[tap];
        barrier();
        for (i32 half = LANES / 2; half > 0; half /= 2) {
            if (lane < half) parts[t] += parts[t + half * CHANNELS];
            barrier();
        }
        if (lane == 0 && c < channels) partials[((i64)split * channels + c) * TAPS + tap] = parts[t];
        barrier();
    }
}
