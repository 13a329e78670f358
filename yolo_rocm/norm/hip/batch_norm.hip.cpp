// BatchNorm with its activation: statistics, activation, sums for the gradients, gradients.
//
//   z = (x - mean) invstd weight + bias,  y = act(z),  dz = dy act'(z)
//   dbias = sum of dz,  dweight = invstd sum of dz (x - mean)
//   dx = invstd weight (dz - mean of dz - (x - mean) invstd^2 mean of dz (x - mean)); of running statistics, dz alone
//
// A channel is cut into parts. A thread adds up what its values differ from the first of them, and the squares of that;
// threads and parts are then combined by Chan, Golub and LeVeque's formula, in an order that never changes. A mean is
// the sum of two numbers: where it is large beside the deviation, one number of fp32 has too few digits for what the
// means of two parts differ by.
//
// Defines: T storage; LAST 1: channels_last; V 4 or 1: values read at once, of pixels (LAST 0) or channels (LAST 1);
// ACT 0 nothing, 1 SiLU, 2 ReLU, 3 leaky ReLU with SLOPE; AFFINE; TRAINING 1: the statistics are the batch's.
// A unit is what a thread reads at once: V pixels of a channel, or V channels of a pixel.

#define THREADS 256
#if LAST
#define ACROSS (32 / V)                 // threads along channels
#define OWN V                           // channels of a thread
#else
#define ACROSS 1
#define OWN 1
#endif
#define CHANNELS (ACROSS * OWN)         // of a block
#define LANES (THREADS / ACROSS)

struct Values {
    float v[V];
};

DEVICE Values read_values(const T* from) {
    Values found;
#if V == 4
    const f4 four = load4f(from);
    found.v[0] = four.x;
    found.v[1] = four.y;
    found.v[2] = four.z;
    found.v[3] = four.w;
#else
    found.v[0] = to_float(from[0]);
#endif
    return found;
}

DEVICE void write_values(T* to, Values values) {
#if V == 4
    store4f(to, f4{values.v[0], values.v[1], values.v[2], values.v[3]});
#else
    to[0] = from_float<T>(values.v[0]);
#endif
}

DEVICE i64 place_of(i32 unit, i32 c, i32 channels, i32 pixels) {
#if LAST
    return (i64)unit * channels + c;
#else
    const i32 row = pixels / V, sample = unit / row;
    return ((i64)sample * channels + c) * pixels + (i64)(unit - sample * row) * V;
#endif
}

// Of one channel: what z is computed from.
struct Scale {
    float mean, scale, added;
};

DEVICE Scale scale_of(const float* mean, const float* invstd, const float* weight, const float* bias, i32 c) {
    Scale found;
    found.mean = mean[c];
    found.scale = AFFINE ? invstd[c] * weight[c] : invstd[c];
    found.added = AFFINE ? bias[c] : 0.0f;
    return found;
}

DEVICE float activated(float z) {
    return activated<ACT>(z, SLOPE);
}

DEVICE float derived(float z) {
#if ACT == 1
    const float s = sigmoid_f(z);
    return s * fma_f(z, 1.0f - s, 1.0f);
#elif ACT == 2
    return z > 0.0f ? 1.0f : 0.0f;
#elif ACT == 3
    return z > 0.0f ? 1.0f : SLOPE;
#else
    return 1.0f;
#endif
}

// How many values, their mean with what its rounding has left, and their squared deviations.
struct Part {
    float count, mean, rest, squares;
};

// Knuth's exact sum of two numbers: rounded, and what the rounding has left.
DEVICE void set_mean(Part& part, float a, float b) {
    const float sum = a + b, added = sum - a;
    part.mean = sum;
    part.rest = (a - (sum - added)) + (b - added);
}

DEVICE Part together(Part a, Part b) {
    const float count = a.count + b.count, distance = (b.mean - a.mean) + (b.rest - a.rest);
    if (b.count == 0.0f) return a;
    if (a.count == 0.0f) return b;
    Part both;
    both.count = count;
    set_mean(both, a.mean, distance * (b.count / count));
    both.rest += a.rest;
    both.squares = a.squares + b.squares + distance * distance * (a.count * (b.count / count));
    return both;
}

KERNEL(THREADS) void partial_statistics(const T* __restrict__ x, float* __restrict__ partials, i32 units,
                                        i32 part_units, i32 parts, i32 channels, i32 pixels)
{
    SHARED Part shared[OWN][THREADS];
    const i32 t = (i32)thread_x(), lane = t / ACROSS, c = (i32)block_x() * CHANNELS + t % ACROSS * OWN;
    const i32 part = (i32)block_y(), begin = part * part_units;
    const i32 end = begin + part_units < units ? begin + part_units : units;
    float shift[OWN], sum[OWN], squares[OWN];
    i32 read_units = 0;
#pragma unroll
    for (i32 i = 0; i < OWN; ++i) shift[i] = sum[i] = squares[i] = 0.0f;
    if (c < channels)
        for (i32 unit = begin + lane; unit < end; unit += LANES) {
            const Values values = read_values(x + place_of(unit, c, channels, pixels));
            if (read_units == 0)
#pragma unroll
                for (i32 i = 0; i < OWN; ++i) shift[i] = values.v[i];
            read_units += 1;
#pragma unroll
            for (i32 i = 0; i < V; ++i) {
                const i32 own = LAST ? i : 0;
                const float d = values.v[i] - shift[own];
                sum[own] += d;
                squares[own] = fma_f(d, d, squares[own]);
            }
        }
#pragma unroll
    for (i32 i = 0; i < OWN; ++i) {
        const float count = (float)(read_units * (LAST ? 1 : V)), off = count > 0.0f ? sum[i] / count : 0.0f;
        Part found;
        found.count = count;
        set_mean(found, shift[i], off);
        found.squares = max_f(squares[i] - off * sum[i], 0.0f);
        shared[i][t] = found;
    }
    barrier();
    for (i32 half = LANES / 2; half > 0; half /= 2) {
        if (lane < half)
#pragma unroll
            for (i32 i = 0; i < OWN; ++i) shared[i][t] = together(shared[i][t], shared[i][t + half * ACROSS]);
        barrier();
    }
    if (lane == 0 && c < channels)
#pragma unroll
        for (i32 i = 0; i < OWN; ++i) {
            partials[(i64)part * channels + c + i] = shared[i][t].count;
            partials[(i64)(parts + part) * channels + c + i] = shared[i][t].mean;
            partials[(i64)(2 * parts + part) * channels + c + i] = shared[i][t].rest;
            partials[(i64)(3 * parts + part) * channels + c + i] = shared[i][t].squares;
        }
}

// Eight channels a block, 32 threads each.
KERNEL(THREADS) void combine_statistics(const float* __restrict__ partials, float* running_mean, float* running_var,
                                        i64* batches, float* __restrict__ mean, float* __restrict__ invstd, i32 parts,
                                        i32 channels, float momentum, float eps)
{
    SHARED Part shared[THREADS];
    const i32 t = (i32)thread_x(), lane = t / 8, c = (i32)block_x() * 8 + t % 8;
    Part own;
    own.count = own.mean = own.rest = own.squares = 0.0f;
    if (c < channels)
        for (i32 part = lane; part < parts; part += 32) {
            Part next;
            next.count = partials[(i64)part * channels + c];
            next.mean = partials[(i64)(parts + part) * channels + c];
            next.rest = partials[(i64)(2 * parts + part) * channels + c];
            next.squares = partials[(i64)(3 * parts + part) * channels + c];
            own = together(own, next);
        }
    shared[t] = own;
    barrier();
    for (i32 half = 16; half > 0; half /= 2) {
        if (lane < half) shared[t] = together(shared[t], shared[t + half * 8]);
        barrier();
    }
    if (lane == 0 && c < channels) {
        own = shared[t];
        own.mean += own.rest;
        mean[c] = own.mean;
        invstd[c] = rsqrt_f(own.squares / own.count + eps);
        if (running_mean) running_mean[c] = running_mean[c] * (1.0f - momentum) + own.mean * momentum;
        if (running_var)  // NaN of a single value, as in torch
            running_var[c] = running_var[c] * (1.0f - momentum) + own.squares / (own.count - 1.0f) * momentum;
        if (batches && c == 0) batches[0] += 1;
    }
}

KERNEL(THREADS) void activate(const T* __restrict__ x, const float* __restrict__ mean, const float* __restrict__ invstd,
                              const float* __restrict__ weight, const float* __restrict__ bias, T* __restrict__ y,
                              u32 units, i32 channels, i32 pixels)
{
    const u32 unit = block_x() * (u32)THREADS + thread_x();
    if (unit >= units) return;
    const i32 c = (i32)(LAST ? unit % (u32)(channels / V) * V : unit / (u32)(pixels / V) % (u32)channels);
    Values values = read_values(x + (i64)unit * V);
#pragma unroll
    for (i32 i = 0; i < V; ++i) {
        const Scale s = scale_of(mean, invstd, weight, bias, LAST ? c + i : c);
        values.v[i] = activated(fma_f(values.v[i] - s.mean, s.scale, s.added));
    }
    write_values(y + (i64)unit * V, values);
}

KERNEL(THREADS) void partial_gradients(const T* __restrict__ grad, const T* __restrict__ x,
                                       const float* __restrict__ mean, const float* __restrict__ invstd,
                                       const float* __restrict__ weight, const float* __restrict__ bias,
                                       float* __restrict__ partials, i32 units, i32 part_units, i32 parts, i32 channels,
                                       i32 pixels)
{
    SHARED float first[OWN][THREADS], second[OWN][THREADS];
    const i32 t = (i32)thread_x(), lane = t / ACROSS, c = (i32)block_x() * CHANNELS + t % ACROSS * OWN;
    const i32 part = (i32)block_y(), begin = part * part_units;
    const i32 end = begin + part_units < units ? begin + part_units : units;
    float total[OWN], product[OWN];
    Scale scales[OWN];
#pragma unroll
    for (i32 i = 0; i < OWN; ++i) {
        total[i] = product[i] = 0.0f;
        if (c < channels) scales[i] = scale_of(mean, invstd, weight, bias, c + i);
    }
    if (c < channels)
        for (i32 unit = begin + lane; unit < end; unit += LANES) {
            const i64 place = place_of(unit, c, channels, pixels);
            const Values values = read_values(x + place), above = read_values(grad + place);
#pragma unroll
            for (i32 i = 0; i < V; ++i) {
                const i32 own = LAST ? i : 0;
                const Scale s = scales[own];
                const float d = values.v[i] - s.mean, dz = above.v[i] * derived(fma_f(d, s.scale, s.added));
                total[own] += dz;
                product[own] = fma_f(dz, d, product[own]);
            }
        }
#pragma unroll
    for (i32 i = 0; i < OWN; ++i) {
        first[i][t] = total[i];
        second[i][t] = product[i];
    }
    barrier();
    for (i32 half = LANES / 2; half > 0; half /= 2) {
        if (lane < half)
#pragma unroll
            for (i32 i = 0; i < OWN; ++i) {
                first[i][t] += first[i][t + half * ACROSS];
                second[i][t] += second[i][t + half * ACROSS];
            }
        barrier();
    }
    if (lane == 0 && c < channels)
#pragma unroll
        for (i32 i = 0; i < OWN; ++i) {
            partials[(i64)part * channels + c + i] = first[i][t];
            partials[(i64)(parts + part) * channels + c + i] = second[i][t];
        }
}

// Gradients of weight and bias where they are wanted, and the two means that the input's is computed from.
KERNEL(THREADS) void combine_gradients(const float* __restrict__ partials, const float* __restrict__ invstd,
                                       float* grad_weight, float* grad_bias, float* __restrict__ means, i32 parts,
                                       i32 channels, float rows)
{
    SHARED float first[THREADS], second[THREADS];
    const i32 t = (i32)thread_x(), lane = t / 8, c = (i32)block_x() * 8 + t % 8;
    float total = 0.0f, product = 0.0f;
    if (c < channels)
        for (i32 part = lane; part < parts; part += 32) {
            total += partials[(i64)part * channels + c];
            product += partials[(i64)(parts + part) * channels + c];
        }
    first[t] = total;
    second[t] = product;
    barrier();
    for (i32 half = 16; half > 0; half /= 2) {
        if (lane < half) {
            first[t] += first[t + half * 8];
            second[t] += second[t + half * 8];
        }
        barrier();
    }
    if (lane == 0 && c < channels) {
        const float inverse = invstd[c];
        if (grad_weight) grad_weight[c] = second[t] * inverse;
        if (grad_bias) grad_bias[c] = first[t];
        means[c] = first[t] / rows;
        means[channels + c] = second[t] * inverse * inverse / rows;
    }
}

KERNEL(THREADS) void input_gradient(const T* __restrict__ grad, const T* __restrict__ x, const float* __restrict__ mean,
                                    const float* __restrict__ invstd, const float* __restrict__ weight,
                                    const float* __restrict__ bias, const float* __restrict__ means,
                                    T* __restrict__ grad_x, u32 units, i32 channels, i32 pixels)
{
    const u32 unit = block_x() * (u32)THREADS + thread_x();
    if (unit >= units) return;
    const i32 c = (i32)(LAST ? unit % (u32)(channels / V) * V : unit / (u32)(pixels / V) % (u32)channels);
    Values values = read_values(x + (i64)unit * V);
    const Values above = read_values(grad + (i64)unit * V);
#pragma unroll
    for (i32 i = 0; i < V; ++i) {
        const i32 own = LAST ? c + i : c;
        const Scale s = scale_of(mean, invstd, weight, bias, own);
        const float d = values.v[i] - s.mean;
        float dz = above.v[i] * derived(fma_f(d, s.scale, s.added));
#if TRAINING
        dz -= fma_f(d, means[channels + own], means[own]);
#endif
        values.v[i] = dz * s.scale;
    }
    write_values(grad_x + (i64)unit * V, values);
}
