/* The few words in which a function is written once for an AMD GPU and for the host.

   A kernel's body is a sequence of THREADS blocks: on the GPU each is run once by every thread, on the host it is a loop
   over the threads of a group. Values that live from one block to the next are declared with EACH and used with OF. */

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;
typedef _Float16 f16;
typedef float f32;
typedef double f64;

#ifdef __AMDGCN__
#define GLOBAL __attribute__((address_space(1)))
#define KERNEL(name) __attribute__((amdgpu_kernel)) void name
#define SHARED static __attribute__((address_space(3), loader_uninitialized))
#define GROUP_X __builtin_amdgcn_workgroup_id_x()
#define GROUP_Y __builtin_amdgcn_workgroup_id_y()
#define GROUP_Z __builtin_amdgcn_workgroup_id_z()
#define THREADS(t, count) for (u32 t = __builtin_amdgcn_workitem_id_x(), once_ = 1; once_; once_ = 0)
#define EACH(type, name, count) type name
#define OF(name) name
#define BARRIER                                              \
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");     \
  __builtin_amdgcn_s_barrier();                              \
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup")
#if __AMDGCN_WAVEFRONT_SIZE == 64
#define LANE ((u32)__builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)))
#else
#define LANE ((u32)__builtin_amdgcn_mbcnt_lo(~0u, 0))
#endif
#define ROLLED _Pragma("clang loop unroll(disable)")
#define DPP(name, kind, control, rows, banks) __builtin_amdgcn_update_dpp(-1, name, control, rows, banks, 0)
#define DPP_OR_ZERO(name, kind, control) __builtin_amdgcn_mov_dpp(name, control, 0xf, 0xf, 1)
#define SWIZZLE(name, pattern) __builtin_amdgcn_ds_swizzle(name, pattern)
#define SHUFFLE(name, lane) __builtin_amdgcn_ds_bpermute((int)(((LANE & ~31u) | ((lane) & 31u)) << 2), name)
#define READLANE(name, lane) __builtin_amdgcn_readlane(name, lane)
#define READFIRST(name) __builtin_amdgcn_readfirstlane(name)
#define ATOMIC_ADD(where, value) __scoped_atomic_fetch_add(where, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE)
#define ATOMIC_MAX(where, value) __scoped_atomic_fetch_max(where, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE)
#define ATOMIC_OR(where, value) __scoped_atomic_fetch_or(where, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE)
#else
#define GLOBAL
#define KERNEL(name) void name
#define SHARED static
u32 group_x, group_y, group_z; /* set by the caller before every group */
#define GROUP_X group_x
#define GROUP_Y group_y
#define GROUP_Z group_z
#define THREADS(t, count) for (u32 t = 0; t < (count); ++t)
#define EACH(type, name, count) type name[count]
#define OF(name) name[t]
#define BARRIER
#define ROLLED
#define DPP(name, kind, control, rows, banks) \
  ((rows) >> (t >> 4 & 3) & (banks) >> (t >> 2 & 3) & 1 ? dpp_##kind(name, t, control, -1) : -1)
#define DPP_OR_ZERO(name, kind, control) dpp_##kind(name, t, control, 0)
#define SWIZZLE(name, pattern) swizzle(name, t, pattern)
#define SHUFFLE(name, lane) name[(t & ~31u) | ((lane) & 31u)]
#define READLANE(name, lane) name[(t & ~(wave - 1)) | (lane)]
#define READFIRST(name) name[t & ~(wave - 1)]
static u32 add_(u32 *where, u32 value) { u32 old = *where; *where = old + value; return old; }
static i32 max_(i32 *where, i32 value) { i32 old = *where; *where = value > old ? value : old; return old; }
static u32 or_(u32 *where, u32 value) { u32 old = *where; *where = old | value; return old; }
#define ATOMIC_ADD(where, value) add_(where, value)
#define ATOMIC_MAX(where, value) max_(where, value)
#define ATOMIC_OR(where, value) or_(where, value)
#endif

#define PUT(slot, value) out[(slot) * n + i] = (value)
#define ELEMENT                          \
  u32 i = GROUP_X * 64 + t;              \
  if (i >= n) continue

/* Buffers with a descriptor: what is read behind the end is 0, what is written there is lost. */
#ifdef __AMDGCN__
typedef __amdgpu_buffer_rsrc_t descriptor;
#ifdef __GFX9__
#define BUFFER_FLAGS 0x00027000 /* 32 bits of float, which raw accesses ignore */
#else
#define BUFFER_FLAGS 0x31027000 /* and: offsets are compared with the size in bytes */
#endif
#define DESCRIBE(where, bytes) __builtin_amdgcn_make_buffer_rsrc((void *)(where), 0, (int)(bytes), BUFFER_FLAGS)
#define BUFFER_LOAD(bits, type, from, offset) (type) __builtin_amdgcn_raw_buffer_load_b##bits(from, (int)(offset), 0, 0)
#define BUFFER_STORE(bits, value, to, offset) __builtin_amdgcn_raw_buffer_store_b##bits(value, to, (int)(offset), 0, 0)
#else
typedef struct {
  u8 *where;
  u32 bytes;
} descriptor;
#define DESCRIBE(where, bytes) ((descriptor){(u8 *)(where), (bytes)})
#define BUFFER_LOAD(bits, type, from, offset)                                       \
  ({                                                                                \
    type made_ = {0};                                                               \
    u64 at_ = (u32)(offset);                                                        \
    if (at_ + bits / 8 <= from.bytes) __builtin_memcpy(&made_, from.where + at_, bits / 8); \
    made_;                                                                          \
  })
#define BUFFER_STORE(bits, value, to, offset)                                      \
  do {                                                                             \
    __typeof__(value) kept_ = (value);                                             \
    u64 at_ = (u32)(offset);                                                       \
    if (at_ + bits / 8 <= to.bytes) __builtin_memcpy(to.where + at_, &kept_, bits / 8); \
  } while (0)
#endif

/* ---- what the host has no instruction for: the manual's words in C ---- */

#ifdef __AMDGCN__
#define perm_b32 __builtin_amdgcn_perm
#define alignbit_b32 __builtin_amdgcn_alignbit
#define alignbyte_b32 __builtin_amdgcn_alignbyte
#define sad_u8 __builtin_amdgcn_sad_u8
#define lerp_u8 __builtin_amdgcn_lerp
#define ubfe __builtin_amdgcn_ubfe
#define sbfe __builtin_amdgcn_sbfe
#define med3 __builtin_amdgcn_fmed3f
static u32 pack_toward_zero(f32 a, f32 b) { return __builtin_bit_cast(u32, __builtin_amdgcn_cvt_pkrtz(a, b)); }
static f16 fma_f16(f16 a, f16 b, f16 c) { return __builtin_fmaf16(a, b, c); }
static u64 mulhi64(u64 a, u64 b) { return (u64)(((unsigned __int128)a * b) >> 64); }
#else
static u32 perm_b32(u32 a, u32 b, u32 select) {
  u64 bytes = ((u64)a << 32) | b;
  u32 made = 0;
  for (int k = 0; k < 4; ++k) {
    u32 which = (select >> (8 * k)) & 0xff, byte;
    if (which >= 13) byte = 0xff;
    else if (which == 12) byte = 0;
    else if (which >= 8) byte = (bytes >> (16 * (which - 8) + 15)) & 1 ? 0xff : 0;
    else byte = (bytes >> (8 * which)) & 0xff;
    made |= byte << (8 * k);
  }
  return made;
}
static u32 alignbit_b32(u32 a, u32 b, u32 by) { return (u32)((((u64)a << 32) | b) >> (by & 31)); }
static u32 alignbyte_b32(u32 a, u32 b, u32 by) { return (u32)((((u64)a << 32) | b) >> (8 * (by & 3))); }
static u32 sad_u8(u32 a, u32 b, u32 c) {
  for (int k = 0; k < 32; k += 8) {
    i32 apart = (i32)((a >> k) & 0xff) - (i32)((b >> k) & 0xff);
    c += (u32)(apart < 0 ? -apart : apart);
  }
  return c;
}
static u32 lerp_u8(u32 a, u32 b, u32 c) {
  u32 made = 0;
  for (int k = 0; k < 32; k += 8) made |= ((((a >> k) & 0xff) + ((b >> k) & 0xff) + ((c >> k) & 1)) >> 1) << k;
  return made;
}
static u32 ubfe(u32 a, u32 offset, u32 width) {
  offset &= 31, width &= 31;
  return (a >> offset) & ((1u << width) - 1);
}
static u32 sbfe(u32 a, u32 offset, u32 width) {
  u32 field = ubfe(a, offset, width), sign = (width & 31) ? 1u << ((width & 31) - 1) : 0;
  return (field ^ sign) - sign;
}
static f32 med3(f32 a, f32 b, f32 c) { /* of numbers: the middle one */
  f32 low = a < b ? a : b, high = a < b ? b : a;
  return c < low ? low : c > high ? high : c;
}
static u16 half_toward_zero(f32 value) {
  u32 bits;
  __builtin_memcpy(&bits, &value, 4);
  u32 sign = (bits >> 16) & 0x8000, exponent = (bits >> 23) & 0xff, fraction = bits & 0x7fffff;
  if (exponent == 0xff) return (u16)(sign | 0x7c00 | (fraction ? 0x200 | (fraction >> 13) : 0));
  if (exponent >= 143) return (u16)(sign | 0x7bff); /* the largest finite one, not infinity */
  if (exponent >= 113) return (u16)(sign | ((exponent - 112) << 10) | (fraction >> 13));
  if (exponent < 103) return (u16)sign;
  return (u16)(sign | ((fraction | 0x800000) >> (126 - exponent)));
}
static u32 pack_toward_zero(f32 a, f32 b) { return half_toward_zero(a) | (u32)half_toward_zero(b) << 16; }
/* One rounding: the sum is rounded to odd in fp64, which has more than twice the bits of fp16. */
static f16 fma_f16(f16 a, f16 b, f16 c) {
  f64 product = (f64)a * (f64)b, third = (f64)c, sum = product + third;
  f64 part = sum - product, lost = (product - (sum - part)) + (third - part);
  u64 bits;
  __builtin_memcpy(&bits, &sum, 8);
  if (lost == lost && lost != 0 && sum - sum == 0 && !(bits & 1)) bits += ((lost > 0) == (sum > 0)) ? 1 : -1;
  __builtin_memcpy(&sum, &bits, 8);
  return (f16)sum;
}
static u64 mulhi64(u64 a, u64 b) { return (u64)(((unsigned __int128)a * b) >> 64); }
/* Data parallel primitives: rows of 16 lanes. A lane without a source takes `other`. */
#define DPP_KIND(kind) static i32 dpp_##kind(const i32 *x, u32 t, u32 c, i32 other)
DPP_KIND(row_shr) { return (t & 15) >= (c & 15) ? x[t - (c & 15)] : other; }
DPP_KIND(row_shl) { return (t & 15) + (c & 15) < 16 ? x[t + (c & 15)] : other; }
DPP_KIND(row_ror) { return (void)other, x[(t & ~15u) | ((t - c) & 15)]; }
DPP_KIND(quad_perm) { return (void)other, x[(t & ~3u) | ((c >> (2 * (t & 3))) & 3)]; }
DPP_KIND(row_mirror) { return (void)c, (void)other, x[t ^ 15]; }
DPP_KIND(row_half_mirror) { return (void)c, (void)other, x[t ^ 7]; }
DPP_KIND(row_share) { return (void)other, x[(t & ~15u) | (c & 15)]; }
DPP_KIND(row_xmask) { return (void)other, x[t ^ (c & 15)]; }
DPP_KIND(row_bcast15) { return (void)c, t & 48 ? x[(t & ~15u) - 1] : other; }
DPP_KIND(row_bcast31) { return (void)c, t & 32 ? x[(t & ~31u) - 1] : other; }
static i32 swizzle(const i32 *x, u32 t, u32 pattern) {
  if (pattern & 0x8000) return x[(t & ~3u) | ((pattern >> (2 * (t & 3))) & 3)];
  u32 lane = (((t & 31) & (pattern & 31)) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31);
  return x[(t & ~31u) | lane];
}
static i32 permlane(const i32 *x, u32 t, u32 low, u32 high, u32 across) {
  u64 places = ((u64)high << 32) | low;
  return x[((t & ~15u) ^ across) | ((places >> (4 * (t & 15))) & 15)];
}
#endif

static u32 bits_of(f32 value) {
  u32 bits;
  __builtin_memcpy(&bits, &value, 4);
  return bits;
}
static f32 f32_of(u32 bits) {
  f32 value;
  __builtin_memcpy(&value, &bits, 4);
  return value;
}
static f16 f16_of(u16 bits) {
  f16 value;
  __builtin_memcpy(&value, &bits, 2);
  return value;
}
static u16 bits_of_f16(f16 value) {
  u16 bits;
  __builtin_memcpy(&bits, &value, 2);
  return bits;
}
