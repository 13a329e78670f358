// Winograd's F(2x2, 3x3) in one kernel: forward of a 3 x 3 convolution of stride 1, or its grad-input, which is one of the
// same kind on the gradient, with the weight turned and the padding 2 - padding.
//
// A block computes 32 tiles of 2 x 2 results x 32 outputs. In steps of 8 channels each thread transforms the 4 x 4 values
// under one tile of one channel; 16 products of matrices follow, one for each place of the transformed tile, on 16
// threads each, 8 x 8 results a thread. At the end the places meet in shared memory and are transformed back.
// Multiplications are 4/9 of a plain sum's.
//
// Defines: T storage; SRC_LAST 1: channels are contiguous; OUT_LAST 1: outputs are; VEC_OUT 1: two results of a row can be
// written at once (OUT_LAST 0); EVEN_K 1: channels are a multiple of 8; ACT and SLOPE of the activation.

#define THREADS 256
#define TILES 32
#define OUTPUTS 32
#define DEPTH 8
#define V_ROW (TILES + 4)
#define V_PLACE (DEPTH * V_ROW + 16)    // the 16 put two places on different banks
#define U_PLACE (DEPTH * OUTPUTS + 16)
#define M_ROW (TILES + 4)
#if IS_NVIDIA
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef K_UNROLL
#define K_UNROLL 2
#endif
#define WINOGRAD_KERNEL extern "C" __global__ __launch_bounds__(THREADS, BLOCKS)
#else
#define K_UNROLL 2
#define WINOGRAD_KERNEL KERNEL(THREADS)
#endif

WINOGRAD_KERNEL void winograd(
    const T* __restrict__ src, const T* __restrict__ weight, const T* __restrict__ bias, T* __restrict__ out,
    i32 batch, i32 out_h, i32 out_w, i32 src_h, i32 src_w, i32 channels, i32 outputs,
    i32 src_n, i32 src_c, i32 src_y, i32 src_x, i32 out_n, i32 out_c, i32 out_y, i32 out_x,  // strides
    i32 padding_h, i32 padding_w, i32 tiles_n, i32 packed_channels)
{
    alignas(16) SHARED float pool[16 * 16 * M_ROW];  // V and U of a step; at the end half of the products
    float* const v_tile = pool;
    float* const u_tile = pool + 16 * V_PLACE;
    const i32 t = (i32)thread_x();
    const i32 block_n = (i32)(block_x() % (u32)tiles_n), block_m = (i32)(block_x() / (u32)tiles_n);
    const i32 across = (out_w + 1) / 2, area = (out_h + 1) / 2 * across, tiles = batch * area;
    const i32 packed_outputs = tiles_n * OUTPUTS;

    // The values a thread transforms: one tile, one channel of a step.
    const i32 own_tile = SRC_LAST ? t / DEPTH : t % TILES, own_depth = SRC_LAST ? t % DEPTH : t / TILES;
    const i32 own = block_m * TILES + own_tile;
    u32 inside = 0;  // a bit for each of the 16 values
    const T* from = src;
    {
        const i32 sample = own / area, rest = own - sample * area, row = rest / across;
        const i32 y = row * 2 - padding_h, x = (rest - row * across) * 2 - padding_w;
#pragma unroll
        for (i32 i = 0; i < 16; ++i)
            if (own < tiles && (u32)(y + i / 4) < (u32)src_h && (u32)(x + i % 4) < (u32)src_w) inside |= 1u << i;
        from += (i64)sample * src_n + (i64)y * src_y + (i64)x * src_x + (i64)own_depth * src_c;
    }
    const T* packed = weight + block_n * OUTPUTS;
    const i32 place_size = packed_channels * packed_outputs;

    float d[16];
    f4 u_next[4];
    float sums[8][8];
#pragma unroll
    for (i32 i = 0; i < 8; ++i)
#pragma unroll
        for (i32 j = 0; j < 8; ++j) sums[i][j] = 0.0f;

    auto gather = [&](i32 channel) {
        const u32 mask = EVEN_K || channel + own_depth < channels ? inside : 0u;
        const T* const at = from + (i64)channel * src_c;
#pragma unroll
        for (i32 i = 0; i < 16; ++i) d[i] = mask >> i & 1u ? to_float(at[i / 4 * src_y + i % 4 * src_x]) : 0.0f;
#pragma unroll
        for (i32 r = 0; r < 4; ++r) {
            const i32 part = t + r * THREADS, place = part / (DEPTH * OUTPUTS / 4), rest = part % (DEPTH * OUTPUTS / 4);
            u_next[r] = load4f(packed + ((i64)place * place_size + (i64)(channel + rest / (OUTPUTS / 4)) * packed_outputs +
                                         rest % (OUTPUTS / 4) * 4));
        }
    };
    auto keep = [&]() {
        float* const to = v_tile + own_depth * V_ROW + own_tile;
        float e[16];
#pragma unroll
        for (i32 i = 0; i < 4; ++i) {
            e[i] = d[i] - d[8 + i];
            e[4 + i] = d[4 + i] + d[8 + i];
            e[8 + i] = d[8 + i] - d[4 + i];
            e[12 + i] = d[4 + i] - d[12 + i];
        }
#pragma unroll
        for (i32 i = 0; i < 4; ++i) {
            to[(4 * i) * V_PLACE] = e[4 * i] - e[4 * i + 2];
            to[(4 * i + 1) * V_PLACE] = e[4 * i + 1] + e[4 * i + 2];
            to[(4 * i + 2) * V_PLACE] = e[4 * i + 2] - e[4 * i + 1];
            to[(4 * i + 3) * V_PLACE] = e[4 * i + 1] - e[4 * i + 3];
        }
#pragma unroll
        for (i32 r = 0; r < 4; ++r) {
            const i32 part = t + r * THREADS, place = part / (DEPTH * OUTPUTS / 4), rest = part % (DEPTH * OUTPUTS / 4);
            store4(u_tile + place * U_PLACE + rest * 4, u_next[r]);
        }
    };

    const i32 place = t / 16, tm = t % 16 / 4, tn = t % 4;
    gather(0);
    for (i32 channel = 0; channel < packed_channels; channel += DEPTH) {
        keep();
        barrier();
        if (channel + DEPTH < packed_channels) gather(channel + DEPTH);
#pragma unroll K_UNROLL
        for (i32 k = 0; k < DEPTH; ++k) {
            float a[8], b[8];
#pragma unroll
            for (i32 i = 0; i < 2; ++i) {
                const f4 v = load4(v_tile + place * V_PLACE + k * V_ROW + (i * 4 + tm) * 4);
                a[4 * i] = v.x;
                a[4 * i + 1] = v.y;
                a[4 * i + 2] = v.z;
                a[4 * i + 3] = v.w;
                const f4 u = load4(u_tile + place * U_PLACE + k * OUTPUTS + (i * 4 + tn) * 4);
                b[4 * i] = u.x;
                b[4 * i + 1] = u.y;
                b[4 * i + 2] = u.z;
                b[4 * i + 3] = u.w;
            }
#pragma unroll
            for (i32 i = 0; i < 8; ++i)
#pragma unroll
                for (i32 j = 0; j < 8; ++j) sums[i][j] = fma_f(a[i], b[j], sums[i][j]);
        }
        barrier();
    }

    // Half of the outputs at a time: products to shared memory as [place][output][tile], then back to results.
#pragma unroll
    for (i32 half = 0; half < 2; ++half) {
#pragma unroll
        for (i32 i = 0; i < 2; ++i)
#pragma unroll
            for (i32 j = 0; j < 4; ++j)
                store4(pool + (place * 16 + tn * 4 + j) * M_ROW + (i * 4 + tm) * 4,
                       f4{sums[4 * i][4 * half + j], sums[4 * i + 1][4 * half + j], sums[4 * i + 2][4 * half + j],
                          sums[4 * i + 3][4 * half + j]});
        barrier();
#pragma unroll
        for (i32 r = 0; r < 2; ++r) {
            const i32 item = t + r * THREADS;
            const i32 tile = OUT_LAST ? item / 16 : item % TILES, o = OUT_LAST ? item % 16 : item / TILES;
            const i32 n = block_n * OUTPUTS + half * 16 + o, number = block_m * TILES + tile;
            if (n < outputs && number < tiles) {
                float m[16], e[8];
#pragma unroll
                for (i32 i = 0; i < 16; ++i) m[i] = pool[(i * 16 + o) * M_ROW + tile];
#pragma unroll
                for (i32 i = 0; i < 4; ++i) {
                    e[i] = m[i] + m[4 + i] + m[8 + i];
                    e[4 + i] = m[4 + i] - m[8 + i] - m[12 + i];
                }
                const i32 sample = number / area, rest = number - sample * area, row = rest / across;
                const i32 y = row * 2, x = (rest - row * across) * 2;
                T* const to = out + (i64)sample * out_n + (i64)n * out_c + (i64)y * out_y + (i64)x * out_x;
                const float more = bias ? to_float(bias[n]) : 0.0f;
#pragma unroll
                for (i32 i = 0; i < 2; ++i)
                    if (y + i < out_h) {
                        const float first = activated<ACT>(e[4 * i] + e[4 * i + 1] + e[4 * i + 2] + more, SLOPE);
                        const float second = activated<ACT>(e[4 * i + 1] - e[4 * i + 2] - e[4 * i + 3] + more, SLOPE);
#if VEC_OUT
                        store2((float*)(to + i * out_y), f2{first, second});
#else
                        to[i * out_y] = from_float<T>(first);
                        if (x + 1 < out_w) to[i * out_y + out_x] = from_float<T>(second);
#endif
                    }
            }
        }
        barrier();
    }
}
