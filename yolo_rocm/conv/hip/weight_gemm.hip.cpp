// Grad-weight as a matrix product over pixels, in splits whose partial sums are added in a fixed order by sum_partials.
//
//   partials[split, o, tap, c] = sum over the split's pixels of grad[pixel, o] * src[pixel moved by the tap, c]
//
// A block computes BM outputs x BN columns, a column being a tap and a channel, a thread TM x TN of them, in steps of BK
// pixels. Columns stay with a thread for the whole sum, pixels do not: a few threads write the places of a step's pixels
// into shared memory, two steps ahead.
//
// Defines: T storage; BM, BN, BK, TM, TN; GRAD_LAST, SRC_LAST 1: channels are contiguous and can be read four at a time;
// ONE_TAP 1: the columns that a thread reads (SRC_LAST 0) belong to one tap.

#define ROWS (BM / TM)
#define COLS (BN / TN)
#define THREADS (ROWS * COLS)
#if IS_NVIDIA
#define KERNEL_BLOCKS(threads, blocks) extern "C" __global__ __launch_bounds__(threads, blocks)
#ifndef K_UNROLL
#define K_UNROLL BK
#endif
#else  // clang would load all operands of a step first, and run out of registers
#define KERNEL_BLOCKS(threads, blocks) KERNEL(threads)
#ifndef K_UNROLL
#define K_UNROLL 2
#endif
#endif
#define A_STRIDE (BM + 4)
#define B_STRIDE (BN + 4)

// Four outputs of a pixel, or a run of outputs for one pixel: neighbours have neighbouring pixels then.
#define A_PARTS (BM * BK / 4)
#define A_ROUNDS ((A_PARTS + THREADS - 1) / THREADS)
#define A_WHOLE (A_PARTS % THREADS == 0)
#define A_RUN (BM * BK / THREADS)
#define B_PARTS (BN * BK / 4)
#define B_ROUNDS ((B_PARTS + THREADS - 1) / THREADS)
#define B_WHOLE (B_PARTS % THREADS == 0)
#define B_RUN (BN * BK / THREADS)
#define A_VALUES (GRAD_LAST ? 4 * A_ROUNDS : A_RUN)
#define B_VALUES (SRC_LAST ? 4 * B_ROUNDS : B_RUN)
#define B_COLUMNS (SRC_LAST ? (THREADS % (BN / 4) == 0 ? 1 : B_ROUNDS) : (ONE_TAP ? 1 : B_RUN))

KERNEL_BLOCKS(THREADS, BLOCKS) void weight_gemm(
    const T* __restrict__ grad, const T* __restrict__ src, float* __restrict__ partials,
    i32 pixels, i32 split_pixels, i32 out_h, i32 out_w, i32 src_h, i32 src_w, i32 channels, i32 outputs,
    i32 grad_n, i32 grad_c, i32 grad_y, i32 grad_x, i32 src_n, i32 src_c, i32 src_y, i32 src_x,  // strides
    i32 kernel_h, i32 kernel_w, i32 stride_h, i32 stride_w, i32 padding_h, i32 padding_w, i32 dilation_h,
    i32 dilation_w, i32 tiles_n, i32 groups)
{
    alignas(16) SHARED float a_tile[2][BK][A_STRIDE];
    alignas(16) SHARED float b_tile[2][BK][B_STRIDE];
    SHARED i64 grad_at[2][BK];          // offset of a pixel; -1 where the split has no such pixel
    SHARED i64 src_at[2][BK];
    SHARED i32 top[2][BK], left[2][BK];
    const i32 t = (i32)thread_x();
    const i32 tile_n = (i32)(block_x() % (u32)tiles_n), tile_m = (i32)(block_x() / (u32)tiles_n);
    const i32 group = (i32)block_y(), split = (i32)block_z();
    const i32 begin = split * split_pixels;
    const i32 end = begin + split_pixels < pixels ? begin + split_pixels : pixels;
    const i32 steps = (end - begin + BK - 1) / BK;
    const i32 width = kernel_h * kernel_w * channels;
    const i32 m0 = tile_m * BM, n0 = tile_n * BN;
    const T* const grads = grad + (i64)group * outputs * grad_c;
    const T* const sources = src + (i64)group * channels * src_c;

    auto place = [&](i32 step) {
        if (t < BK) {
            const i32 which = step & 1, pixel = begin + step * BK + t;
            const i32 area = out_h * out_w, sample = pixel / area, rest = pixel - sample * area, row = rest / out_w;
            const i32 column = rest - row * out_w;
            const i32 y = row * stride_h - padding_h, x = column * stride_w - padding_w;
            grad_at[which][t] = pixel < end ? (i64)sample * grad_n + (i64)row * grad_y + (i64)column * grad_x : -1;
            src_at[which][t] = (i64)sample * src_n + (i64)y * src_y + (i64)x * src_x;
            top[which][t] = pixel < end ? y : -(1 << 29);
            left[which][t] = x;
        }
    };

    // The columns a thread reads: offset, and how far the tap moves; far outside where there is no such column.
    i32 moved[B_COLUMNS], down[B_COLUMNS], right[B_COLUMNS];
#pragma unroll
    for (i32 r = 0; r < B_COLUMNS; ++r) {
        const i32 n = n0 + (SRC_LAST ? (t + r * THREADS) % (BN / 4) * 4 : t / BK * B_RUN + r);
        const i32 tap = n / channels, c = n - tap * channels, tap_y = tap / kernel_w, tap_x = tap - tap_y * kernel_w;
        moved[r] = tap_y * dilation_h * src_y + tap_x * dilation_w * src_x + c * src_c;
        down[r] = n < width ? tap_y * dilation_h : -(1 << 29);
        right[r] = tap_x * dilation_w;
    }

    float a_next[A_VALUES], b_next[B_VALUES];
    float sums[TM][TN];
#pragma unroll
    for (i32 i = 0; i < TM; ++i)
#pragma unroll
        for (i32 j = 0; j < TN; ++j) sums[i][j] = 0.0f;

    auto gather = [&](i32 step) {
        const i32 which = step & 1;
#pragma unroll
        for (i32 i = 0; i < A_VALUES; ++i) a_next[i] = 0.0f;
#pragma unroll
        for (i32 i = 0; i < B_VALUES; ++i) b_next[i] = 0.0f;
#if GRAD_LAST
#pragma unroll
        for (i32 r = 0; r < A_ROUNDS; ++r) {
            const i32 part = t + r * THREADS, k = part / (BM / 4), m = m0 + part % (BM / 4) * 4;
            if ((A_WHOLE || part < A_PARTS) && m < outputs) {
                const i64 at = grad_at[which][k];
                if (at >= 0) {
                    const f4 v = load4f(grads + at + m);
                    a_next[4 * r] = v.x;
                    a_next[4 * r + 1] = v.y;
                    a_next[4 * r + 2] = v.z;
                    a_next[4 * r + 3] = v.w;
                }
            }
        }
#else
        {
            const i64 at = grad_at[which][t % BK];
            const i32 m = m0 + t / BK * A_RUN;
            if (at >= 0) {
                const T* const from = grads + at + (i64)m * grad_c;
#pragma unroll
                for (i32 r = 0; r < A_RUN; ++r)
                    if (m + r < outputs) a_next[r] = to_float(from[r * grad_c]);
            }
        }
#endif
#if SRC_LAST
#pragma unroll
        for (i32 r = 0; r < B_ROUNDS; ++r) {
            const i32 part = t + r * THREADS, k = part / (BN / 4), c = B_COLUMNS == 1 ? 0 : r;
            if (B_WHOLE || part < B_PARTS) {
                const i32 y = top[which][k] + down[c], x = left[which][k] + right[c];
                if ((u32)y < (u32)src_h && (u32)x < (u32)src_w) {
                    const f4 v = load4f(sources + src_at[which][k] + moved[c]);
                    b_next[4 * r] = v.x;
                    b_next[4 * r + 1] = v.y;
                    b_next[4 * r + 2] = v.z;
                    b_next[4 * r + 3] = v.w;
                }
            }
        }
#else
        {
            const i32 k = t % BK, y = top[which][k], x = left[which][k];
            const T* const from = sources + src_at[which][k];
#if ONE_TAP
            if ((u32)(y + down[0]) < (u32)src_h && (u32)(x + right[0]) < (u32)src_w) {
#pragma unroll
                for (i32 r = 0; r < B_RUN; ++r) b_next[r] = to_float(from[moved[0] + r * src_c]);
            }
#else
#pragma unroll
            for (i32 r = 0; r < B_RUN; ++r)
                if ((u32)(y + down[r]) < (u32)src_h && (u32)(x + right[r]) < (u32)src_w)
                    b_next[r] = to_float(from[moved[r]]);
#endif
        }
#endif
    };

    auto keep = [&](i32 which) {
#if GRAD_LAST
#pragma unroll
        for (i32 r = 0; r < A_ROUNDS; ++r) {
            const i32 part = t + r * THREADS;
            if (A_WHOLE || part < A_PARTS)
                store4(&a_tile[which][part / (BM / 4)][part % (BM / 4) * 4],
                       f4{a_next[4 * r], a_next[4 * r + 1], a_next[4 * r + 2], a_next[4 * r + 3]});
        }
#elif A_RUN % 4 == 0
#pragma unroll
        for (i32 r = 0; r < A_RUN / 4; ++r)
            store4(&a_tile[which][t % BK][t / BK * A_RUN + 4 * r],
                   f4{a_next[4 * r], a_next[4 * r + 1], a_next[4 * r + 2], a_next[4 * r + 3]});
#else
#pragma unroll
        for (i32 r = 0; r < A_RUN; ++r) a_tile[which][t % BK][t / BK * A_RUN + r] = a_next[r];
#endif
#if SRC_LAST
#pragma unroll
        for (i32 r = 0; r < B_ROUNDS; ++r) {
            const i32 part = t + r * THREADS;
            if (B_WHOLE || part < B_PARTS)
                store4(&b_tile[which][part / (BN / 4)][part % (BN / 4) * 4],
                       f4{b_next[4 * r], b_next[4 * r + 1], b_next[4 * r + 2], b_next[4 * r + 3]});
        }
#elif B_RUN % 4 == 0
#pragma unroll
        for (i32 r = 0; r < B_RUN / 4; ++r)
            store4(&b_tile[which][t % BK][t / BK * B_RUN + 4 * r],
                   f4{b_next[4 * r], b_next[4 * r + 1], b_next[4 * r + 2], b_next[4 * r + 3]});
#else
#pragma unroll
        for (i32 r = 0; r < B_RUN; ++r) b_tile[which][t % BK][t / BK * B_RUN + r] = b_next[r];
#endif
    };

    const i32 tn = t % COLS, tm = t / COLS;
    place(0);
    place(1);
    barrier();
    gather(0);
    keep(0);
    barrier();
    for (i32 step = 0; step < steps; ++step) {
        const i32 now = step & 1;
        if (step + 1 < steps) gather(step + 1);
        if (step + 2 < steps) place(step + 2);  // the places of this step were read before the last barrier
#pragma unroll K_UNROLL
        for (i32 k = 0; k < BK; ++k) {
            float a[TM], b[TN];
#pragma unroll
            for (i32 i = 0; i < TM / 4; ++i) {
                const f4 v = load4(&a_tile[now][k][(i * ROWS + tm) * 4]);
                a[4 * i] = v.x;
                a[4 * i + 1] = v.y;
                a[4 * i + 2] = v.z;
                a[4 * i + 3] = v.w;
            }
#pragma unroll
            for (i32 j = 0; j < TN / 4; ++j) {
                const f4 v = load4(&b_tile[now][k][(j * COLS + tn) * 4]);
                b[4 * j] = v.x;
                b[4 * j + 1] = v.y;
                b[4 * j + 2] = v.z;
                b[4 * j + 3] = v.w;
            }
#pragma unroll
            for (i32 i = 0; i < TM; ++i)
#pragma unroll
                for (i32 j = 0; j < TN; ++j) sums[i][j] = fma_f(a[i], b[j], sums[i][j]);
        }
        if (step + 1 < steps) keep(now ^ 1);
        barrier();
    }

    float* const result = partials + ((i64)split * groups + group) * outputs * width;
#pragma unroll
    for (i32 i = 0; i < TM; ++i) {
        const i32 m = m0 + (i / 4 * ROWS + tm) * 4 + i % 4;
        if (m < outputs) {
#pragma unroll
            for (i32 j = 0; j < TN / 4; ++j) {
                const i32 n = n0 + (j * COLS + tn) * 4;
                float* const to = result + (i64)m * width + n;
                if (width % 4 == 0) {
                    if (n < width)
                        store4(to, f4{sums[i][4 * j], sums[i][4 * j + 1], sums[i][4 * j + 2], sums[i][4 * j + 3]});
                } else {
#pragma unroll
                    for (i32 v = 0; v < 4; ++v)
                        if (n + v < width) to[v] = sums[i][4 * j + v];
                }
            }
        }
    }
}
