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

KERNEL(int32_builtins)(const GLOBAL u32 *left, const GLOBAL u32 *right, GLOBAL u32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    u32 a = left[i], b = right[i];
    PUT(0, (u32)perm_b32(a, b, 0x00070c03));
    PUT(1, (u32)perm_b32(a, b, 0x080a090b));
    PUT(2, (u32)perm_b32(a, b, a ^ (b >> 3)));
    PUT(3, (u32)alignbit_b32(a, b, a + b));
    PUT(4, (u32)alignbyte_b32(a, b, a + b));
    PUT(5, (u32)sad_u8(a, b, 1000));
    PUT(6, (u32)lerp_u8(a, b, 0x01010001));
    PUT(7, (u32)ubfe(a, b, b >> 5));
    PUT(8, (u32)sbfe(a, b, b >> 5));
    PUT(9, (u32)sbfe(a, 8, 9));
  }
}

KERNEL(int64_add_mul)(const GLOBAL u64 *left, const GLOBAL u64 *right, GLOBAL u64 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    u64 a = left[i], b = right[i];
    PUT(0, a + b);
    PUT(1, a - b);
    PUT(2, a * b);
    PUT(3, mulhi64(a, b));
    PUT(4, a + b < a);
    PUT(5, a + b < a ? ~0ull : a + b);
    PUT(6, a << (b & 63));
    PUT(7, a >> (b & 63));
    PUT(8, (u64)((i64)a >> (b & 63)));
    PUT(9, a ? (u64)__builtin_clzll(a) : 64);
    PUT(10, a ? (u64)__builtin_ctzll(a) : 64);
    PUT(11, (u64)__builtin_popcountll(a));
    PUT(12, (i64)a < (i64)b ? a : b);
    PUT(13, a > b ? a : b);
    PUT(14, (u64)(u32)a * (u32)b + a);
    PUT(15, (u64)((i64)(i32)a * (i32)b + (i64)b));
    PUT(16, __builtin_bswap64(a) ^ b);
    PUT(17, (a >> 13) & 0x1ffffffffffull);
    PUT(18, (a == b) + 2 * (a != 0) + 4 * ((i64)a >= (i64)b) + 8 * (a <= b));
  }
}

KERNEL(int64_divide)(const GLOBAL u64 *left, const GLOBAL u64 *right, GLOBAL u64 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    u64 a = left[i], b = right[i] ? right[i] : 5;
    PUT(0, a / b);
    PUT(1, a % b);
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

/* ---- fp64 ---- */

KERNEL(fp64_arithmetic)(const GLOBAL f64 *x, const GLOBAL f64 *y, const GLOBAL f64 *z, GLOBAL f64 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    f64 a = x[i], b = y[i], c = z[i];
    PUT(0, a + b);
    PUT(1, a - b);
    PUT(2, a * b);
    PUT(3, __builtin_fma(a, b, c));
    PUT(4, __builtin_fabs(a) * -b);
    PUT(5, a < b ? c : a);
    PUT(6, __builtin_floor(a));
    PUT(7, __builtin_rint(b));
  }
}

KERNEL(fp64_divide)(const GLOBAL f64 *x, const GLOBAL f64 *y, GLOBAL f64 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    PUT(0, x[i] / y[i]);
  }
}

/* ---- conversions ---- */

KERNEL(convert_to_integer)(const GLOBAL f32 *x, GLOBAL u32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    f32 a = x[i];
    f32 small = a > -2147483648.0f && a < 2147483648.0f ? a : 0.0f;
    f32 above = a > -1.0f && a < 4294967296.0f ? a : 0.0f;
    f32 byte = a > -1.0f && a < 256.0f ? a : 0.0f;
    PUT(0, (u32)(i32)small);
    PUT(1, (u32)above);
    PUT(2, (u32)(i32)__builtin_rintf(small));
    PUT(3, (u32)(i32)__builtin_floorf(small));
    PUT(4, (u32)(u8)byte * 0x01010101u);
    i64 wide = (i64)(small * 4096.0f);
    PUT(5, (u32)wide);
    PUT(6, (u32)(wide >> 32));
    PUT(7, (u32)(i32)(f64)small);
    f16 half = (f16)(a > -2048.0f && a < 2048.0f ? a : 0.0f);
    PUT(8, (u32)(i32)(i16)half);
    PUT(9, (u32)(u16)(half < (f16)0 ? -half : half));
  }
}

KERNEL(convert_from_integer)(const GLOBAL u32 *values, const GLOBAL u32 *more, GLOBAL f32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    u32 a = values[i];
    u64 wide = ((u64)more[i] << 32) | a;
    PUT(0, (f32)a);
    PUT(1, (f32)(i32)a);
    PUT(2, (f32)(u8)a);
    PUT(3, (f32)(u8)(a >> 8));
    PUT(4, (f32)(u8)(a >> 16));
    PUT(5, (f32)(a >> 24));
    PUT(6, (f32)(i16)a);
    PUT(7, (f32)wide);
    PUT(8, (f32)(i64)wide);
    PUT(9, (f32)((f64)a * 1.0000001));
    PUT(10, (f32)((f64)(i32)a + 0.5));
    PUT(11, (f32)(f16)(f32)(i16)a);
    PUT(12, (f32)(f16)(u16)(a & 0xfff));
  }
}

KERNEL(convert_floats)(const GLOBAL f32 *x, const GLOBAL f64 *y, GLOBAL u32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    f32 a = x[i];
    f16 half = (f16)a;
    PUT(0, bits_of((f32)half));
    PUT(1, bits_of((f32)y[i]));
    u32 bits = bits_of(a);
    u32 nearest = a != a ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16; /* bf16, ties to even */
    PUT(2, bits_of(f32_of(nearest << 16)));
    PUT(3, bits_of(a == a ? f32_of(bits & 0xffff0000) : 0.0f));
    f64 wide = (f64)a;
    u64 raw;
    __builtin_memcpy(&raw, &wide, 8);
    PUT(4, a == a ? (u32)raw : 0);
    PUT(5, a == a ? (u32)(raw >> 32) : 0);
    PUT(6, a == a ? pack_toward_zero(a, -a) : 0);
    PUT(7, a == a ? bits_of_f16(half) | 0x30000u : 0);
  }
}

/* ---- fp16 ---- */

KERNEL(fp16_arithmetic)(const GLOBAL f16 *x, const GLOBAL f16 *y, const GLOBAL f16 *z, GLOBAL f16 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    f16 a = x[i], b = y[i], c = z[i];
    PUT(0, (f16)(a + b));
    PUT(1, (f16)(a - b));
    PUT(2, (f16)(a * b));
    PUT(3, fma_f16(a, b, c));
    PUT(4, -a);
    PUT(5, a < b ? a : c);
    PUT(6, (f16)((f32)a * (f32)b + (f32)c));
    PUT(7, fma_f16(a, (f16)2.0f, (f16)-1.0f));
  }
}

KERNEL(fp16_divide)(const GLOBAL f16 *x, const GLOBAL f16 *y, GLOBAL f16 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    PUT(0, (f16)(x[i] / y[i]));
  }
}

/* Two values a register; `crossed` takes the halves crosswise. */
typedef f16 half2 __attribute__((vector_size(4)));
typedef u16 ushort2 __attribute__((vector_size(4)));
typedef i16 short2 __attribute__((vector_size(4)));

#ifdef __AMDGCN__
#define FMA2 __builtin_elementwise_fma
#define MIN2 __builtin_elementwise_min
#define MAX2 __builtin_elementwise_max
#else
static half2 FMA2(half2 a, half2 b, half2 c) {
  return (half2){fma_f16(a[0], b[0], c[0]), fma_f16(a[1], b[1], c[1])};
}
#define MIN2(a, b) ((((a) < (b)) & (a)) | (~((a) < (b)) & (b)))
#define MAX2(a, b) ((((a) > (b)) & (a)) | (~((a) > (b)) & (b)))
#endif

KERNEL(fp16_packed)(const GLOBAL half2 *x, const GLOBAL half2 *y, const GLOBAL half2 *z, GLOBAL half2 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    half2 a = x[i], b = y[i], c = z[i], crossed = {b[1], b[0]};
    PUT(0, a + b);
    PUT(1, a * b);
    PUT(2, FMA2(a, b, c));
    PUT(3, FMA2(a, crossed, ((half2){c[0], c[0]})));
    PUT(4, a - crossed);
    PUT(5, FMA2(-a, b, c));
    PUT(6, FMA2(a, ((half2){(f16)0.5f, (f16)-3.0f}), b));
  }
}

KERNEL(int16_packed)(const GLOBAL ushort2 *x, const GLOBAL ushort2 *y, GLOBAL ushort2 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    ushort2 a = x[i], b = y[i], crossed = {b[1], b[0]}, by = b & (u16)15;
    short2 p = (short2)a, q = (short2)b;
    PUT(0, a + b);
    PUT(1, a - crossed);
    PUT(2, a * b);
    PUT(3, (ushort2)(MAX2(p, q)));
    PUT(4, (ushort2)(MIN2(p, q)));
    PUT(5, (ushort2)(p >> (short2)by));
    PUT(6, a >> by);
    PUT(7, a << by);
    PUT(8, a * b + crossed);
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

KERNEL(atomics)(const GLOBAL u32 *x, GLOBAL u32 *sums, GLOBAL i32 *largest, GLOBAL u32 *out, u32 n) {
  SHARED u32 bins[16];
  THREADS(t, 256) {
    if (t < 16) bins[t] = 0;
  }
  BARRIER;
  THREADS(t, 256) {
    u32 i = GROUP_X * 256 + t;
    if (i < n) {
      u32 a = x[i];
      ATOMIC_ADD(&bins[a & 15], a >> 4);
      ATOMIC_ADD(&sums[a % 5], 1);
      ATOMIC_OR(&sums[5 + a % 3], 1u << (a & 31));
      ATOMIC_MAX(largest, (i32)a);
    }
  }
  BARRIER;
  THREADS(t, 256) {
    if (t < 16) out[GROUP_X * 16 + t] = bins[t];
  }
}

/* ---- between lanes ---- */

KERNEL(shuffles)(const GLOBAL i32 *x, GLOBAL i32 *out, u32 wave) {
  EACH(i32, a, 256);
  EACH(i32, b, 256);
  const u32 n = 256;
  THREADS(t, 256) { OF(a) = x[t]; }
  THREADS(t, 256) {
    u32 i = t;
    PUT(0, SHUFFLE(a, t ^ 1));
    PUT(1, SHUFFLE(a, 31 - t));
    PUT(2, SHUFFLE(a, t * 5 + 3));
    PUT(3, READLANE(a, 5));
    PUT(4, READLANE(a, 30) + READFIRST(a));
  }
  for (u32 by = 16; by; by >>= 1) {
    THREADS(t, 256) { OF(b) = SHUFFLE(a, t ^ by); }
    THREADS(t, 256) { OF(a) += OF(b) * (i32)(t | 1); }
  }
  THREADS(t, 256) { out[5 * n + t] = OF(a); }
}

KERNEL(lanes_of_rows)(const GLOBAL i32 *x, GLOBAL i32 *out) {
  EACH(i32, a, 256);
  const u32 n = 256;
  THREADS(t, 256) { OF(a) = x[t]; }
  THREADS(t, 256) {
    u32 i = t;
    PUT(0, DPP(a, row_shr, 0x111, 0xf, 0xf));
    PUT(1, DPP(a, row_shr, 0x118, 0xf, 0xc));
    PUT(2, DPP(a, row_shl, 0x103, 0xa, 0xf));
    PUT(3, DPP(a, row_ror, 0x125, 0xf, 0xf));
    PUT(4, DPP(a, quad_perm, 0x1b, 0xf, 0x5));
    PUT(5, DPP(a, quad_perm, 0xb1, 0xf, 0xf) + OF(a));
    PUT(6, DPP(a, row_mirror, 0x140, 0xf, 0xf));
    PUT(7, DPP(a, row_half_mirror, 0x141, 0xf, 0xf));
    PUT(8, DPP_OR_ZERO(a, row_shr, 0x112) + 3);
    PUT(9, SWIZZLE(a, 0x041f));
    PUT(10, SWIZZLE(a, 0x4063));
    PUT(11, SWIZZLE(a, 0x80b1));
  }
}

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

#if !defined(__AMDGCN__) || !defined(__GFX9__)
#ifdef __AMDGCN__
#define PERMLANE(name, low, high) (i32)__builtin_amdgcn_permlane16(0, (u32)(name), low, high, 0, 0)
#define PERMLANE_ACROSS(name, low, high) (i32)__builtin_amdgcn_permlanex16(0, (u32)(name), low, high, 0, 0)
#else
#define PERMLANE(name, low, high) permlane(name, t, low, high, 0)
#define PERMLANE_ACROSS(name, low, high) permlane(name, t, low, high, 16)
#endif
KERNEL(lanes_of_gfx10)(const GLOBAL i32 *x, GLOBAL i32 *out) {
  EACH(i32, a, 256);
  const u32 n = 256;
  THREADS(t, 256) { OF(a) = x[t]; }
  THREADS(t, 256) {
    u32 i = t;
    PUT(0, DPP(a, row_share, 0x155, 0xf, 0xf));
    PUT(1, DPP(a, row_xmask, 0x16a, 0xf, 0xf));
    PUT(2, PERMLANE(a, 0x75310246, 0xfdb98ace));
    PUT(3, PERMLANE_ACROSS(a, 0x76543210, 0xfedcba98));
    PUT(4, PERMLANE_ACROSS(a, ~0u, 0x13579bdf));
  }
}
#endif

#if !defined(__AMDGCN__) || !defined(__gfx1010__)
#ifdef __AMDGCN__
#define DOT4(a, b, c) __builtin_amdgcn_udot4(a, b, c, 0)
#else
static u32 DOT4(u32 a, u32 b, u32 c) {
  for (int k = 0; k < 32; k += 8) c += ((a >> k) & 0xff) * ((b >> k) & 0xff);
  return c;
}
#endif
KERNEL(byte_dots)(const GLOBAL u32 *left, const GLOBAL u32 *right, GLOBAL u32 *out, u32 n) {
  THREADS(t, 64) {
    ELEMENT;
    PUT(0, DOT4(left[i], right[i], 1000));
    PUT(1, DOT4(left[i], left[i], right[i]));
  }
}
#endif

/* ---- the launch ---- */

KERNEL(many_arguments)
(i8 a, i16 b, GLOBAL f64 *out, u8 c, f32 d, f64 e, i32 f, u16 g, u16 h, i64 k, u32 l, u8 m, u64 o, f32 p) {
  THREADS(t, 64) {
    f64 mine = t == 0   ? a
               : t == 1 ? b
               : t == 2 ? c
               : t == 3 ? d
               : t == 4 ? e
               : t == 5 ? f
               : t == 6 ? (f32)f16_of(g)
               : t == 7 ? h
               : t == 8 ? (f64)k
               : t == 9 ? l
               : t == 10 ? m
               : t == 11 ? (f64)o
                         : p;
    out[t] = mine;
  }
}

KERNEL(three_dimensions)(GLOBAL u32 *out, u32 groups_x, u32 groups_y) {
  THREADS(t, 64) {
    u32 group = (GROUP_Z * groups_y + GROUP_Y) * groups_x + GROUP_X;
    out[group * 64 + t] = t + 1000 * GROUP_X + 10000 * GROUP_Y + 100000 * GROUP_Z;
  }
}
