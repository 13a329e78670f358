// Convolution as a matrix product whose left operand is gathered on the fly: forward, and grad-input phase by phase.
//
//   out[pixel, n] = bias[n] + sum over taps and channels of src[pixel moved by the tap, channel] * weight[tap, channel, n]
//
// A block computes BM pixels x BN outputs, a thread TM x TN of them, in steps of BK channels of one tap. Tiles lie in
// shared memory as [channel][pixel] and [channel][output], twice: a step is computed from one copy while the next one's
// values, already in registers, go to the other. Weights are packed before (pack_weight): padded with zeros to whole
// tiles, so that only the source is ever checked.
//
// Defines: T storage; BM, BN, BK, TM, TN; BACK 1 for grad-input; SRC_LAST 1: channels are contiguous and can be read four
// at a time; POINTWISE 1 (SRC_LAST 0): one tap, step 1, no padding, four pixels at a time; OUT_LAST 1: outputs are
// contiguous; VEC_OUT 1: results can be written four at a time; EVEN_K 1: channels are a multiple of BK; ACT and SLOPE
// of the activation.

#define ROWS (BM / TM)                  // threads along pixels
#define COLS (BN / TN)                  // threads along outputs
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
#define A_STRIDE (BM + 4)               // spreads the transposing stores over the banks
#define B_STRIDE BN

// Threads of 32 lanes form a patch: long in the direction in which results are contiguous.
#define PATCH_WISH (OUT_LAST ? 8 : 4)
#define PATCH_N (COLS % PATCH_WISH == 0 && ROWS % (32 / PATCH_WISH) == 0 ? PATCH_WISH : COLS)
#define PATCHED (PATCH_N != COLS || (32 % COLS == 0 && ROWS % (32 / COLS) == 0))
#define PATCH_M (PATCHED ? 32 / PATCH_N : 1)

#if SRC_LAST || POINTWISE
#define A_PARTS (BM * BK / 4)           // of four values each
#define A_WIDTH 4
#else
#define A_PARTS (BM * BK)
#define A_WIDTH 1
#endif
#define A_ROUNDS ((A_PARTS + THREADS - 1) / THREADS)
#define A_WHOLE (A_PARTS % THREADS == 0)
#define B_PARTS (BN * BK / 4)
#define B_ROUNDS ((B_PARTS + THREADS - 1) / THREADS)
#define B_WHOLE (B_PARTS % THREADS == 0)
// Pixels a thread gathers for: its rounds meet them in turn.
#if SRC_LAST
#define A_PIXELS A_ROUNDS
#else
#define A_ACROSS (BM / A_WIDTH)
#define A_PIXELS (THREADS % A_ACROSS == 0 ? 1 : A_ACROSS % THREADS == 0 ? A_ACROSS / THREADS : A_ROUNDS)
#endif

// The taps that meet a phase along one axis: tap = first + m * every, source = position * move + base + m * hop.
struct Axis {
    i32 first, every, count, move, base, hop;
};

DEVICE Axis axis_of(i32 kernel, i32 stride, i32 padding, i32 dilation, i32 phase) {
    Axis axis;
#if BACK
    axis.first = kernel;
    axis.every = kernel;
    axis.count = 0;
    for (i32 tap = kernel - 1; tap >= 0; --tap)
        if ((phase + padding - tap * dilation) % stride == 0) {
            axis.every = axis.first - tap;
            axis.first = tap;
            axis.count += 1;
        }
    axis.move = 1;
    axis.base = (phase + padding - axis.first * dilation) / stride;
    axis.hop = -(axis.every * dilation) / stride;
#else
    axis.first = 0;
    axis.every = 1;
    axis.count = kernel;
    axis.move = stride;
    axis.base = -padding;
    axis.hop = dilation;
#endif
    return axis;
}

KERNEL_BLOCKS(THREADS, BLOCKS) void gather_gemm(
    const T* __restrict__ src, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ out,
    i32 batch, i32 rows, i32 columns,                   // pixels of a phase
    i32 out_h, i32 out_w, i32 src_h, i32 src_w, i32 channels, i32 outputs,  // the last two of a group
    i32 src_n, i32 src_c, i32 src_y, i32 src_x, i32 out_n, i32 out_c, i32 out_y, i32 out_x,  // strides
    i32 kernel_h, i32 kernel_w, i32 stride_h, i32 stride_w, i32 padding_h, i32 padding_w, i32 dilation_h,
    i32 dilation_w, i32 tiles_n, i32 groups, i32 weight_row)  // elements of the packed weight for one channel
{
    alignas(16) SHARED float a_tile[2][BK][A_STRIDE];
    alignas(16) SHARED float b_tile[2][BK][B_STRIDE];
    const i32 t = (i32)thread_x();
    // Phases are neighbours: they write to the same cache lines.
    const u32 phases = BACK ? (u32)(stride_h * stride_w) : 1u, number = block_x() / (u32)tiles_n;
    const i32 tile_n = (i32)(block_x() % (u32)tiles_n), tile_m = (i32)(number / phases);
    const i32 group = (i32)block_y(), phase = (i32)(number % phases);
    const i32 phase_h = BACK ? phase / stride_w : 0, phase_w = BACK ? phase % stride_w : 0;
    const Axis ver = axis_of(kernel_h, stride_h, padding_h, dilation_h, phase_h);
    const Axis hor = axis_of(kernel_w, stride_w, padding_w, dilation_w, phase_w);
    const i32 area = rows * columns, pixels = batch * area;
    const i32 first = tile_m * BM;
    // All offsets below are from the first sample of the tile: 32 bits are enough for them.
    const i32 sample0 = first / area;
    const T* const base = src + (i64)sample0 * src_n + (i64)group * channels * src_c;

    // What each thread gathers.
    i32 origin[A_PIXELS];               // offset of the source at tap (0, 0)
    i32 top[A_PIXELS], left[A_PIXELS];  // its place; far outside where there is no such pixel
#pragma unroll
    for (i32 r = 0; r < A_PIXELS; ++r) {
        const i32 part = t + r * THREADS;
#if SRC_LAST
        const i32 m = part / (BK / 4);
#elif POINTWISE
        const i32 m = part % (BM / 4) * 4;
#else
        const i32 m = part % BM;
#endif
        const i32 pixel = first + m;
        const bool there = pixel < pixels && m < BM;
        const i32 sample = pixel / area, rest = pixel - sample * area, row = rest / columns;
        const i32 y = row * ver.move + ver.base, x = (rest - row * columns) * hor.move + hor.base;
        top[r] = there ? y : -(1 << 29);
        left[r] = x;
        origin[r] = (sample - sample0) * src_n + y * src_y + x * src_x;
    }

    float a_next[A_ROUNDS * A_WIDTH];
    f4 b_next[B_ROUNDS];
    float sums[TM][TN];
#pragma unroll
    for (i32 i = 0; i < TM; ++i)
#pragma unroll
        for (i32 j = 0; j < TN; ++j) sums[i][j] = 0.0f;

    // Where the next step reads: a tap and its channels.
    const i32 packed_channels = (channels + BK - 1) / BK * BK;
    i32 tap_y = 0, tap_x = 0, channel = 0;
    const i32 steps = ver.count * hor.count * (packed_channels / BK);
    const T* const packed = weight + (i64)group * (weight_row / groups) + tile_n * BN;

    auto gather = [&]() {
        const i32 moved = tap_y * ver.hop * src_y + tap_x * hor.hop * src_x;
        const i32 dy = tap_y * ver.hop, dx = tap_x * hor.hop;
#pragma unroll
        for (i32 i = 0; i < A_ROUNDS * A_WIDTH; ++i) a_next[i] = 0.0f;
#pragma unroll
        for (i32 p = 0; p < A_PIXELS; ++p) {
            if ((u32)(top[p] + dy) < (u32)src_h && (u32)(left[p] + dx) < (u32)src_w) {
                const T* const from = base + (i64)(origin[p] + moved) + (i64)channel * src_c;
#pragma unroll
                for (i32 r = p; r < A_ROUNDS; r += A_PIXELS) {
                    const i32 part = t + r * THREADS;
#if SRC_LAST
                    const i32 k = part % (BK / 4) * 4, at = k;
#else
                    const i32 k = part / A_ACROSS, at = k * src_c;
#endif
                    if ((A_WHOLE || part < A_PARTS) && (EVEN_K || channel + k < channels)) {
#if A_WIDTH == 4
                        const f4 value = load4f(from + at);
                        a_next[4 * r] = value.x;
                        a_next[4 * r + 1] = value.y;
                        a_next[4 * r + 2] = value.z;
                        a_next[4 * r + 3] = value.w;
#else
                        a_next[r] = to_float(from[at]);
#endif
                    }
                }
            }
        }
        const i32 tap = (ver.first + tap_y * ver.every) * kernel_w + hor.first + tap_x * hor.every;
        const T* const from = packed + ((i64)tap * packed_channels + channel) * weight_row;
#pragma unroll
        for (i32 r = 0; r < B_ROUNDS; ++r) {
            const i32 part = t + r * THREADS;
            if (B_WHOLE || part < B_PARTS) b_next[r] = load4f(from + part / (BN / 4) * weight_row + part % (BN / 4) * 4);
        }
        channel += BK;
        if (channel >= packed_channels) {
            channel = 0;
            tap_x += 1;
            if (tap_x == hor.count) {
                tap_x = 0;
                tap_y += 1;
            }
        }
    };

    auto keep = [&](i32 which) {
#pragma unroll
        for (i32 r = 0; r < A_ROUNDS; ++r) {
            const i32 part = t + r * THREADS;
            if (A_WHOLE || part < A_PARTS) {
#if SRC_LAST
#pragma unroll
                for (i32 i = 0; i < 4; ++i) a_tile[which][part % (BK / 4) * 4 + i][part / (BK / 4)] = a_next[4 * r + i];
#elif POINTWISE
                store4(&a_tile[which][part / (BM / 4)][part % (BM / 4) * 4],
                       f4{a_next[4 * r], a_next[4 * r + 1], a_next[4 * r + 2], a_next[4 * r + 3]});
#else
                a_tile[which][part / BM][part % BM] = a_next[r];
#endif
            }
        }
#pragma unroll
        for (i32 r = 0; r < B_ROUNDS; ++r) {
            const i32 part = t + r * THREADS;
            if (B_WHOLE || part < B_PARTS) store4(&b_tile[which][part / (BN / 4)][part % (BN / 4) * 4], b_next[r]);
        }
    };

    // A thread's pixels and outputs are runs of four, ROWS and COLS runs apart: neighbours read neighbouring banks.
    const i32 lane = t % 32, patch = t / 32;
    const i32 tn = PATCHED ? lane % PATCH_N + patch % (COLS / PATCH_N) * PATCH_N : t % COLS;
    const i32 tm = PATCHED ? lane / PATCH_N + patch / (COLS / PATCH_N) * PATCH_M : t / COLS;

    if (steps > 0) {
        gather();
        keep(0);
    }
    barrier();
    for (i32 step = 0; step < steps; ++step) {
        const i32 now = step & 1;
        if (step + 1 < steps) gather();
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

    T* const result = out + (i64)sample0 * out_n + (i64)group * outputs * out_c;
    const i32 n0 = tile_n * BN;
#pragma unroll
    for (i32 i = 0; i < TM / 4; ++i) {
        const i32 m = first + (i * ROWS + tm) * 4;
        i32 sample = m / area;
        i32 row = (m - sample * area) / columns, column = m - sample * area - row * columns;
        sample -= sample0;
#if !OUT_LAST && VEC_OUT
        if (m >= pixels) continue;
        T* const to = result + (sample * out_n + row * out_y + column * out_x);
#pragma unroll
        for (i32 j = 0; j < TN; ++j) {
            const i32 n = n0 + (j / 4 * COLS + tn) * 4 + j % 4;
            if (n < outputs) {
                const float more = bias ? to_float(bias[group * outputs + n]) : 0.0f;
                store4f(to + (i64)n * out_c, f4{activated<ACT>(sums[4 * i][j] + more, SLOPE),
                                                activated<ACT>(sums[4 * i + 1][j] + more, SLOPE),
                                                activated<ACT>(sums[4 * i + 2][j] + more, SLOPE),
                                                activated<ACT>(sums[4 * i + 3][j] + more, SLOPE)});
            }
        }
#else
#pragma unroll
        for (i32 s = 0; s < 4; ++s) {
            const i32 y = BACK ? row * stride_h + phase_h : row, x = BACK ? column * stride_w + phase_w : column;
            if (m + s < pixels && y < out_h && x < out_w) {
                T* const to = result + (sample * out_n + y * out_y + x * out_x);
#pragma unroll
                for (i32 j = 0; j < TN / 4; ++j) {
                    const i32 n = n0 + (j * COLS + tn) * 4;
                    float values[4];
#pragma unroll
                    for (i32 v = 0; v < 4; ++v) {
                        const bool biased = bias && n + v < outputs;
                        const float more = biased ? to_float(bias[group * outputs + n + v]) : 0.0f;
                        values[v] = activated<ACT>(sums[4 * i + s][4 * j + v] + more, SLOPE);
                    }
#if VEC_OUT
                    if (n < outputs) store4f(to + n, f4{values[0], values[1], values[2], values[3]});
#else
#pragma unroll
                    for (i32 v = 0; v < 4; ++v)
                        if (n + v < outputs) to[(i64)(n + v) * out_c] = from_float<T>(values[v]);
#endif
                }
            }
            column += 1;
            if (column == columns) {
                column = 0;
                row += 1;
                if (row == rows) {
                    row = 0;
                    sample += 1;
                }
            }
        }
#endif
    }
}
