/* Functions that are no convolutions, for an AMD GPU and for the host.

   clang compiles this file for gfx targets (the emulator runs the assembly), the host's compiler makes a shared library
   of it (the CPU runs that); both must give the same bits. Every result is defined by the C standard or by the manual's
   words in portable.h. make.py has the command lines, cases.py the arguments. */

#include "portable.h"

/* ---- integers ---- */

KERNEL(int32_add_mul)(const GLOBAL u32 *left, const GLOBAL u32 *right, GLOBAL u32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    u32 a = left[i], b = right[i];
    i32 p = (i32)a, q = (i32)b;
    PUT(0, a + b);
    PUT(1, a - b);
    PUT(2, a * b);
    PUT(3, (u32)(((u64)a * b) >> 32));
    PUT(4, (u32)(((i64)p * q) >> 32));
    PUT(5, a + b < a);                            /* carry */
    PUT(6, a + b < a ? ~0u : a + b);              /* saturating */
    PUT(7, a < b ? 0 : a - b);
    i64 wide = (i64)p + q;
    PUT(8, (u32)(wide > 2147483647 ? 2147483647 : wide < -2147483647 - 1 ? -2147483647 - 1 : wide));
    PUT(9, a < b ? a : b);
    PUT(10, a > b ? a : b);
    PUT(11, (u32)(p < q ? p : q));
    PUT(12, (u32)(p > q ? p : q));
    PUT(13, (a & 0xffffff) * (b & 0xffffff));     /* 24 bits */
    PUT(14, (a << 3) + b);
    PUT(15, a + b + 77);
    PUT(16, (u32)((i32)(i16)a * (i32)(i16)b));
    PUT(17, (a > b ? a - b : b - a) + 5);
    u32 low = a < b ? a : b, high = a < b ? b : a;
    PUT(18, low > 1000 ? low : high < 1000 ? high : 1000);
    PUT(19, ((a ^ b) + 9) * 3);
  }
}

KERNEL(int32_bits)(const GLOBAL u32 *left, const GLOBAL u32 *right, GLOBAL u32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    u32 a = left[i], b = right[i];
    PUT(0, a << (b & 31));
    PUT(1, a >> (b & 31));
    PUT(2, (u32)((i32)a >> (b & 31)));
    PUT(3, (a << (b & 31)) | (a >> (-b & 31)));
    PUT(4, a ? (u32)__builtin_clz(a) : 32);
    PUT(5, a ? (u32)__builtin_ctz(a) : 32);
    PUT(6, (u32)__builtin_popcount(a));
    PUT(7, (a >> 5) & 0x7f);
    PUT(8, (u32)((i32)(a << 9) >> 21));
    PUT(9, (a & b) | (~a & 0x12345678));
    PUT(10, (a & b) | 0x10000);
    PUT(11, (a << 4) | b);
    PUT(12, a ^ b ^ 0x55555555);
    PUT(13, ~(a ^ b));
    PUT(14, __builtin_bswap32(a));
    PUT(15, (a & 0xffff) | (b << 16));
    PUT(16, (a >> 16) | (b & 0xffff0000));
    PUT(17, (u32)(i32)(i8)(a >> 8) + (u32)(i32)(i16)(b >> 16));
    PUT(18, ((1u << (b & 31)) - 1) & a);
    PUT(19, (u32)__builtin_parity(a));
    PUT(20, (a & 0x00ff00ff) << 8 | (a >> 8 & 0x00ff00ff));
  }
}

KERNEL(int32_divide)(const GLOBAL u32 *left, const GLOBAL u32 *right, GLOBAL u32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    u32 a = left[i], b = right[i] ? right[i] : 3;
    i32 p = (i32)a, q = (i32)b;
    if (q == -1) q = 7;
    PUT(0, a / b);
    PUT(1, a % b);
    PUT(2, (u32)(p / q));
    PUT(3, (u32)(p % q));
    PUT(4, a / 7);
    PUT(5, (u32)(p / -11));
    PUT(6, (u32)(p % 1000));
    PUT(7, a / 641 * 641 + a % 641 - a);
  }
}

/* The same for a whole wave: what is computed from the kernel's arguments and the group's number is scalar. */
KERNEL(scalar_units)(const GLOBAL u32 *values, GLOBAL u32 *out, u32 count, u64 wide, i32 negative) {
  u32 group = GROUP_X;
  u32 a = values[group * 2], b = values[group * 2 + 1];
  u64 sum = wide + (((u64)a << 32) | b);
  u64 product = wide * (((u64)b << 32) | a);
  u32 hash = 2166136261u, steps = 0;
  for (u32 k = 0; k < count; ++k) hash = (hash ^ values[k]) * 16777619u;
  for (u32 k = a; k && steps < 40; k = k & 1 ? (k >> 1) ^ 0xedb88320u : k >> 1) ++steps;
  u32 made[20] = {
      (u32)sum, (u32)(sum >> 32), (u32)product, (u32)(product >> 32), hash, steps,
      a ? (u32)__builtin_clz(a) : 99, a ? (u32)__builtin_ctz(a) : 98, (u32)__builtin_popcount(b),
      (a >> 7) & 0x3ff, (u32)((i32)(b << 3) >> 12), a < b ? a - b : b * 3, (u32)(negative >> (group & 31)),
      (u32)((negative < (i32)a ? negative : (i32)a) - 1), a & ~b, a | ~b, ~(a & b),
      sum > product ? 17 : (u32)__builtin_popcountll(sum), (u32)(sum >> (b & 63)), (a << 2) + b,
  };
  THREADS(t, 64) {
    u32 mine = 0;
    for (u32 k = 0; k < 20; ++k) mine = t == k ? made[k] : mine;
    out[group * 64 + t] = mine;
  }
}

/* ---- fp32 ---- */

KERNEL(fp32_arithmetic)(const GLOBAL f32 *x, const GLOBAL f32 *y, const GLOBAL f32 *z, GLOBAL f32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    f32 a = x[i], b = y[i], c = z[i];
    PUT(0, a + b);
    PUT(1, a - b);
    PUT(2, a * b);
    PUT(3, __builtin_fmaf(a, b, c));
    PUT(4, a * b + c);
    PUT(5, __builtin_fmaf(a, -b, c));
    PUT(6, __builtin_fabsf(a) - __builtin_fabsf(b));
    PUT(7, __builtin_copysignf(a, b));
    PUT(8, __builtin_fmaf(a, 2.0f, -1.0f));
    PUT(9, a * 0.15915494f);
    PUT(10, (a + b) * 0.5f);
    PUT(11, __builtin_fmaf(a, a, 0x1.345678p-3f));
    PUT(12, __builtin_fmaf(a, 0x1.345678p-3f, b));
    PUT(13, a * a - b * b);
  }
}

KERNEL(fp32_rounding)(const GLOBAL f32 *x, GLOBAL f32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    f32 a = x[i];
    PUT(0, __builtin_floorf(a));
    PUT(1, __builtin_ceilf(a));
    PUT(2, __builtin_truncf(a));
    PUT(3, __builtin_rintf(a));
    PUT(4, a - __builtin_floorf(a));
  }
}

KERNEL(fp32_compare)(const GLOBAL f32 *x, const GLOBAL f32 *y, GLOBAL u32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    f32 a = x[i], b = y[i];
    PUT(0, (u32)((a < b) | (a <= b) << 1 | (a > b) << 2 | (a >= b) << 3 | (a == b) << 4 | (a != b) << 5));
    PUT(1, (u32)((!(a < b)) | (!(a <= b)) << 1 | (!(a > b)) << 2 | (!(a >= b)) << 3 | (a != a) << 4 | (b == b) << 5));
    PUT(2, (u32)(__builtin_isunordered(a, b) | __builtin_islessgreater(a, b) << 1));
    PUT(3, bits_of(a < b ? a : b));
    PUT(4, bits_of(a > b ? a : b));
    PUT(5, bits_of(a < 0.0f ? 0.0f : a > 1.0f ? 1.0f : a));
    PUT(6, bits_of(__builtin_fabsf(a) < __builtin_inff() ? b : -b));
    PUT(7, (u32)(__builtin_fabsf(a) < 1.17549435e-38f) | (u32)(a != 0.0f) << 1);
  }
}

/* Of two numbers only: which of two zeros, and what of a NaN, is a matter of instructions (test_instructions.py). */
KERNEL(fp32_min_max)(const GLOBAL f32 *x, const GLOBAL f32 *y, const GLOBAL f32 *z, GLOBAL f32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    f32 a = x[i], b = y[i], c = z[i];
    PUT(0, __builtin_fminf(a, b));
    PUT(1, __builtin_fmaxf(a, b));
    PUT(2, __builtin_fminf(__builtin_fminf(a, b), c));
    PUT(3, __builtin_fmaxf(__builtin_fmaxf(a, b), c));
    PUT(4, med3(a, b, c));
    PUT(5, __builtin_fmaxf(__builtin_fminf(a * b, 6.0f), 0.5f));
  }
}

KERNEL(fp32_divide)(const GLOBAL f32 *x, const GLOBAL f32 *y, GLOBAL f32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    f32 a = x[i], b = y[i];
    PUT(0, a / b);
    PUT(1, 1.0f / b);
  }
}

KERNEL(fp32_square_root)(const GLOBAL f32 *x, GLOBAL f32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    PUT(0, __builtin_sqrtf(x[i]));
  }
}

KERNEL(fp32_scale)(const GLOBAL f32 *x, const GLOBAL i32 *by, GLOBAL f32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    PUT(0, __builtin_ldexpf(x[i], by[i]));
    PUT(1, __builtin_ldexpf(x[i], -30));
  }
}

KERNEL(fp32_pairs)(const GLOBAL f32 *x, const GLOBAL f32 *y, const GLOBAL f32 *z, GLOBAL f32 *out, u32 n) {
  typedef f32 float2 __attribute__((vector_size(8)));
  THREADS(t, 64) {
    ELEMENT;
    float2 a = {x[i], y[i]}, b = {y[i], z[i]}, c = {z[i], x[i]};
    float2 sum = a + b, product = a * c, apart = sum - product;
    float2 fused = {__builtin_fmaf(a[0], b[0], c[0]), __builtin_fmaf(a[1], b[1], c[1])};
    PUT(0, sum[0]);
    PUT(1, sum[1]);
    PUT(2, product[0]);
    PUT(3, product[1]);
    PUT(4, apart[0]);
    PUT(5, apart[1]);
    PUT(6, fused[0]);
    PUT(7, fused[1]);
  }
}

/* ---- local data share, several waves, barriers ---- */

KERNEL(reduce_tree)(const GLOBAL f32 *x, GLOBAL f32 *out, u32 n) {
  SHARED f32 kept[256];
  THREADS(t, 256) {
    u32 i = GROUP_X * 256 + t;
    kept[t] = i < n ? x[i] : 0.0f;
  }
  BARRIER;
  for (u32 half = 128; half; half >>= 1) {
    THREADS(t, 256) {
      if (t < half) kept[t] += kept[t + half];
    }
    BARRIER;
  }
  THREADS(t, 256) {
    if (t == 0) out[GROUP_X] = kept[0];
  }
}

KERNEL(prefix_sum)(const GLOBAL u32 *x, GLOBAL u32 *out, u32 n) {
  SHARED u32 kept[2][256];
  u32 now = 0;
  THREADS(t, 256) {
    u32 i = GROUP_X * 256 + t;
    kept[0][t] = i < n ? x[i] : 0;
  }
  BARRIER;
  for (u32 by = 1; by < 256; by <<= 1) {
    THREADS(t, 256) { kept[1 - now][t] = kept[now][t] + (t >= by ? kept[now][t - by] : 0); }
    now = 1 - now;
    BARRIER;
  }
  THREADS(t, 256) {
    u32 i = GROUP_X * 256 + t;
    if (i < n) out[i] = kept[now][t];
  }
}

KERNEL(transpose_odd_pitch)(const GLOBAL f32 *x, GLOBAL f32 *out, u32 rows, u32 columns) {
  SHARED f32 tile[32][33];
  u32 top = GROUP_Y * 32, left = GROUP_X * 32;
  THREADS(t, 256) {
    for (u32 r = t / 32; r < 32; r += 8) {
      u32 row = top + r, column = left + t % 32;
      if (row < rows && column < columns) tile[r][t % 32] = x[row * columns + column];
    }
  }
  BARRIER;
  THREADS(t, 256) {
    for (u32 r = t / 32; r < 32; r += 8) {
      u32 row = top + t % 32, column = left + r;
      if (row < rows && column < columns) out[column * rows + row] = tile[t % 32][r];
    }
  }
}

/* Bytes, shorts, words and four words of the local data share. */
KERNEL(shared_widths)(const GLOBAL u32 *x, GLOBAL u32 *out) {
  SHARED __attribute__((aligned(16))) u8 bytes[1024];
  SHARED __attribute__((aligned(16))) u16 shorts[512];
  typedef u32 four __attribute__((vector_size(16)));
  SHARED four words[256];
  THREADS(t, 256) {
    u32 a = x[GROUP_X * 256 + t];
    bytes[t] = (u8)a;
    bytes[256 + t] = (u8)(a >> 8);
    bytes[512 + t] = (u8)(a >> 16);
    bytes[768 + t] = (u8)(a >> 24);
    shorts[t] = (u16)a;
    shorts[256 + t] = (u16)(a >> 16);
    words[t] = (four){a, a * 3, ~a, t};
  }
  BARRIER;
  THREADS(t, 256) {
    u32 other = (t * 7 + 13) & 255, made = 0;
    four read = words[255 - t];
    made = bytes[other] + 256u * bytes[256 + (other ^ 1)] + (u32)(i32)(i8)bytes[768 + other];
    made ^= (u32)(i32)(i16)shorts[other] * 5u + shorts[511 - other];
    made += read[0] ^ (read[1] >> 1) ^ read[2] ^ (read[3] << 20);
    out[GROUP_X * 256 + t] = made + words[other][2] + words[other][0];
  }
}

/* ---- control flow ---- */

KERNEL(collatz)(const GLOBAL u32 *x, GLOBAL u32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    u64 value = x[i];
    u32 steps = 0;
    while (value > 1 && steps < 60) {
      value = value & 1 ? value * 3 + 1 : value >> 1;
      ++steps;
    }
    PUT(0, steps);
  }
}

KERNEL(nested_branches)(const GLOBAL i32 *x, GLOBAL i32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    i32 a = x[i];
    out[i] = -1;
    if (a < 0) {
      if (a < -100) {
        out[i] = a / 3;
        continue; /* on the GPU: a return of some lanes */
      }
      out[i] = t & 1 ? a - 1 : a * 2;
    } else {
      i32 sum = 0;
      for (i32 k = 0; k < (a & 15); ++k) {
        if (k == 11) break;
        if ((k ^ a) & 1) continue;
        for (i32 j = k; j < (a >> 4 & 3) + k; ++j) sum += x[(u32)(j + k) % n];
      }
      switch (a & 7) {
        case 0: sum += 1000; break;
        case 1: sum ^= 0x55; /* falls through */
        case 2: sum -= 3; break;
        case 5: sum = ~sum; break;
        default: sum *= 2;
      }
      out[i] = sum;
    }
    out[i] ^= 0x40000000;
  }
}

/* ---- memory ---- */

KERNEL(narrow_memory)(const GLOBAL u8 *bytes, const GLOBAL i16 *shorts, GLOBAL i8 *out, GLOBAL u16 *wide, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    i32 sum = (i8)bytes[i] + shorts[i];
    out[i] = (i8)(sum >> 2);
    wide[i] = (u16)(bytes[n - 1 - i] * 257 - (u16)shorts[n - 1 - i]);
  }
}

struct __attribute__((packed)) odd {
  u8 first;
  u32 second;
  u16 third;
};

KERNEL(unaligned_records)(const GLOBAL struct odd *from, GLOBAL struct odd *to, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    struct odd record;
    record.first = from[n - 1 - i].first;
    record.second = from[i].second + 1;
    record.third = (u16)(from[i].third ^ from[i].first);
    to[i].first = record.first;
    to[i].second = record.second;
    to[i].third = record.third;
  }
}

KERNEL(wide_memory)(const GLOBAL u32 *x, GLOBAL u32 *out, u32 n) {
  typedef u32 two __attribute__((vector_size(8)));
  typedef u32 four __attribute__((vector_size(16)));
  THREADS(t, 64) {
    ELEMENT;
    four a = ((const GLOBAL four *)x)[i], b = ((const GLOBAL four *)x)[n - 1 - i];
    two c = ((const GLOBAL two *)x)[2 * i + 1];
    ((GLOBAL four *)out)[i] = a + (b << 1);
    ((GLOBAL two *)(out + 4 * n))[i] = c ^ (two){a[3], b[0]};
    out[6 * n + 3 * i] = a[0];
    out[6 * n + 3 * i + 1] = b[1];
    out[6 * n + 3 * i + 2] = c[0];
  }
}

/* As compilers mask lanes: an offset that is behind every end. */
KERNEL(buffer_descriptors)(const GLOBAL u32 *x, GLOBAL u32 *out, GLOBAL u32 *wide, u32 n) {
  typedef u32 two __attribute__((vector_size(8)));
  typedef u32 four __attribute__((vector_size(16)));
  descriptor from = DESCRIBE(x, 4 * n), to = DESCRIBE(out, 4 * n), to_wide = DESCRIBE(wide, 16 * n);
  THREADS(t, 64) {
    u32 i = GROUP_X * 64 + t, nowhere = 0x80000000;
    u32 a = BUFFER_LOAD(32, u32, from, 4 * i);
    two b = BUFFER_LOAD(64, two, from, i & 1 ? nowhere : 8 * i);
    four c = BUFFER_LOAD(128, four, from, 16 * i);
    u32 d = BUFFER_LOAD(16, u16, from, i % 3 ? 2 * i : nowhere);
    u32 e = BUFFER_LOAD(8, u8, from, 4 * n - 1 - i);
    BUFFER_STORE(32, a + b[0] * 3 + (b[1] ^ d) + e, to, i % 5 ? 4 * i : nowhere);
    four all = {a, d, e, i};
    two sum = {b[0] + c[0], b[1] + c[1]};
    BUFFER_STORE(128, c + all, to_wide, i & 2 ? nowhere : 16 * i);
    BUFFER_STORE(16, (u16)(a ^ d), to_wide, i & 2 ? 16 * i + 6 : nowhere);
    BUFFER_STORE(64, sum, to_wide, (i & 6) == 2 ? 16 * i + 8 : nowhere);
  }
}

/* An array of a thread's own that registers cannot hold: scratch memory. */
KERNEL(private_array)(const GLOBAL u32 *x, GLOBAL u32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    u32 kept[300];
    u32 a = x[i];
    ROLLED for (u32 k = 0; k < 300; ++k) kept[k] = a * (k + 1) + k;
    ROLLED for (u32 k = 0; k < 20; ++k) {
      u32 place = (a >> (k & 15)) % 300;
      u32 held = kept[place];
      kept[place] = kept[299 - place] ^ held;
      a = a * 1664525u + 1013904223u;
    }
    u32 sum = 0;
    ROLLED for (u32 k = 0; k < 300; k += 3) sum = sum * 31 + kept[(k + a) % 300];
    PUT(0, sum);
  }
}

KERNEL(private_bytes)(const GLOBAL u32 *x, GLOBAL u32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    u8 seen[512];
    ROLLED for (u32 k = 0; k < 512; ++k) seen[k] = (u8)(k * 3);
    u32 a = x[i];
    ROLLED for (u32 k = 0; k < 12; ++k) {
      seen[a & 511] ^= (u8)(a >> 9);
      a = a * 1664525u + 1013904223u;
    }
    u32 hash = 0;
    ROLLED for (u32 k = 0; k < 512; k += 5) hash = hash * 33 + (u32)(i32)(i8)seen[(k + a) & 511];
    PUT(0, hash);
  }
}

/* ---- between lanes ---- */

#if !defined(__AMDGCN__) || defined(__GFX9__)
KERNEL(lanes_of_gfx9)(const GLOBAL i32 *x, GLOBAL i32 *out) {
  EACH(i32, a, 256);
  const u32 n = 256;
  THREADS(t, 256) { OF(a) = x[t]; }
  THREADS(t, 256) {
    u32 i = t;
    PUT(0, DPP(a, row_bcast15, 0x142, 0xf, 0xf));
    PUT(1, DPP(a, row_bcast15, 0x142, 0xa, 0xf));
    PUT(2, DPP(a, row_bcast31, 0x143, 0xc, 0xf));
  }
}
#endif

/* ---- the launch ---- */

KERNEL(three_dimensions)(GLOBAL u32 *out, u32 groups_x, u32 groups_y) {
  THREADS(t, 64) {
    u32 group = (GROUP_Z * groups_y + GROUP_Y) * groups_x + GROUP_X;
    out[group * 64 + t] = t + 1000 * GROUP_X + 10000 * GROUP_Y + 100000 * GROUP_Z;
  }
}
