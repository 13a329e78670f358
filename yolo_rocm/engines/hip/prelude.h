// What every kernel of engine `hip` is compiled after: one vocabulary for hiprtc (ROCm 5.2 to 7), clang -x hip and NVRTC.
// Freestanding: no header is included, because hiprtc of ROCm 7 brings fewer of them than that of 5.2, NVRTC brings none,
// and a wheel of torch need not have them. On AMD everything is a builtin or an attribute of clang.

typedef signed int i32;
typedef unsigned int u32;
typedef signed long long i64;
typedef unsigned long long u64;
typedef unsigned short u16;
typedef unsigned char u8;

#if defined(__CUDACC_RTC__) || defined(__CUDA_ARCH__)
#define IS_AMD 0
#define IS_NVIDIA 1
#define RDNA 0
#define WAVE 32
#define KERNEL(threads) extern "C" __global__ __launch_bounds__(threads)
#define KERNEL_WAVES(threads, waves) extern "C" __global__ __launch_bounds__(threads)
#define DEVICE __device__ __forceinline__
#define SHARED __shared__
#define DYNAMIC_SHARED(type, name) extern __shared__ __align__(16) type name[]
#define UNROLL _Pragma("unroll")
DEVICE u32 thread_x() { return threadIdx.x; }
DEVICE u32 block_x() { return blockIdx.x; }
DEVICE u32 block_y() { return blockIdx.y; }
DEVICE u32 block_z() { return blockIdx.z; }
DEVICE void barrier() { __syncthreads(); }
#else
#define IS_AMD 1
#define IS_NVIDIA 0
#if defined(__GFX9__) || defined(__gfx900__) || defined(__gfx906__) || defined(__gfx908__) || defined(__gfx90a__) || \
    defined(__gfx90c__) || defined(__gfx902__) || defined(__gfx904__) || defined(__gfx909__) || defined(__gfx940__) || \
    defined(__gfx941__) || defined(__gfx942__) || defined(__gfx950__) || defined(__gfx803__) || defined(__GFX8__)
#define RDNA 0
#define WAVE 64
#else
#define RDNA 1
#define WAVE 32
#endif
#define KERNEL(threads) \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads)))
#define KERNEL_WAVES(threads, waves) \
    extern "C" __attribute__((global)) __attribute__((amdgpu_flat_work_group_size(threads, threads))) \
    __attribute__((amdgpu_waves_per_eu(waves)))
#define DEVICE __attribute__((device)) inline __attribute__((always_inline))
#define SHARED __attribute__((shared))
#define DYNAMIC_SHARED(type, name) extern __attribute__((shared)) __attribute__((aligned(16))) type name[]
#define UNROLL _Pragma("unroll")
DEVICE u32 thread_x() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 block_x() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 block_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE u32 block_z() { return __builtin_amdgcn_workgroup_id_z(); }
DEVICE void barrier() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#endif

// Two and four floats, loaded and stored by one instruction where the address is a multiple of their size.
#if IS_NVIDIA
struct __align__(8) f2 { float x, y; };
struct __align__(16) f4 { float x, y, z, w; };
#else
struct __attribute__((aligned(8))) f2 { float x, y; };
struct __attribute__((aligned(16))) f4 { float x, y, z, w; };
#endif
DEVICE f2 load2(const float* p) { return *reinterpret_cast<const f2*>(p); }
DEVICE f4 load4(const float* p) { return *reinterpret_cast<const f4*>(p); }
DEVICE void store2(float* p, f2 v) { *reinterpret_cast<f2*>(p) = v; }
DEVICE void store4(float* p, f4 v) { *reinterpret_cast<f4*>(p) = v; }

// Arithmetic. Names of our own: hiprtc before ROCm 7 has some of the usual ones by itself.
DEVICE float as_float(u32 bits) {
    union { u32 u; float f; } v;
    v.u = bits;
    return v.f;
}
DEVICE u32 as_bits(float value) {
    union { u32 u; float f; } v;
    v.f = value;
    return v.u;
}
#if IS_NVIDIA
DEVICE float fma_f(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE float max_f(float a, float b) { return fmaxf(a, b); }
DEVICE float min_f(float a, float b) { return fminf(a, b); }
DEVICE float exp2_f(float x) { return exp2f(x); }
DEVICE float rsqrt_f(float x) { return rsqrtf(x); }
DEVICE float rcp_f(float x) { return __frcp_rn(x); }
#else
DEVICE float fma_f(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DEVICE float max_f(float a, float b) { return __builtin_fmaxf(a, b); }
DEVICE float min_f(float a, float b) { return __builtin_fminf(a, b); }
DEVICE float exp2_f(float x) { return __builtin_exp2f(x); }
DEVICE float rsqrt_f(float x) { return __builtin_amdgcn_rsqf(x); }  // within 1 ulp, as is the next
DEVICE float rcp_f(float x) { return __builtin_amdgcn_rcpf(x); }
#endif
DEVICE float exp_f(float x) { return exp2_f(x * 1.44269504f); }  // for arguments whose result is at most about 1
DEVICE float sigmoid_f(float x) { return rcp_f(1.0f + exp2_f(x * -1.44269504f)); }  // 0 and 1 far out, never NaN

// What follows a layer; ACT 0 nothing, 1 SiLU, 2 ReLU, 3 leaky ReLU: the order of `engines/activations.py`.
template <int ACT> DEVICE float activated(float z, float slope) {
    if (ACT == 1) return z * sigmoid_f(z);
    if (ACT == 2) return z > 0.0f || z != z ? z : 0.0f;
    if (ACT == 3) return z > 0.0f ? z : z * slope;
    return z;
}

// 16-bit storage, computed with as float. Conversions round to nearest even; too large a value becomes infinite.
struct half_t { u16 bits; };
struct bf16_t { u16 bits; };
DEVICE float to_float(float value) { return value; }
DEVICE float to_float(bf16_t value) { return as_float(u32(value.bits) << 16); }
#if IS_NVIDIA
DEVICE float to_float(half_t value) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(value.bits));
    return f;
}
DEVICE u16 half_bits(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
#else
DEVICE float to_float(half_t value) {
    union { u16 u; _Float16 h; } v;
    v.u = value.bits;
    return float(v.h);
}
DEVICE u16 half_bits(float value) {
    union { u16 u; _Float16 h; } v;
    v.h = _Float16(value);
    return v.u;
}
#endif
template <typename T> struct Storage;
template <> struct Storage<float> {
    static DEVICE float from(float value) { return value; }
};
template <> struct Storage<half_t> {
    static DEVICE half_t from(float value) { half_t h; h.bits = half_bits(value); return h; }
};
template <> struct Storage<bf16_t> {
    static DEVICE bf16_t from(float value) {
        u32 bits = as_bits(value);
        bf16_t b;
        b.bits = value != value ? u16(0x7fc0) : u16((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
        return b;
    }
};
template <typename T> DEVICE T from_float(float value) { return Storage<T>::from(value); }

// Four values of any storage type at an address that is a multiple of their size together.
#if IS_NVIDIA
struct __align__(8) Words { u32 low, high; };
#else
struct __attribute__((aligned(8))) Words { u32 low, high; };
#endif
DEVICE f4 load4f(const float* p) { return load4(p); }
DEVICE void store4f(float* p, f4 v) { store4(p, v); }
template <typename T> DEVICE T from_bits(u32 bits) { T v; v.bits = u16(bits); return v; }
template <typename T> DEVICE f4 load4f(const T* p) {
    Words w = *reinterpret_cast<const Words*>(p);
    f4 v;
    v.x = to_float(from_bits<T>(w.low));
    v.y = to_float(from_bits<T>(w.low >> 16));
    v.z = to_float(from_bits<T>(w.high));
    v.w = to_float(from_bits<T>(w.high >> 16));
    return v;
}
template <typename T> DEVICE void store4f(T* p, f4 v) {
    Words w;
    w.low = u32(from_float<T>(v.x).bits) | u32(from_float<T>(v.y).bits) << 16;
    w.high = u32(from_float<T>(v.z).bits) | u32(from_float<T>(v.w).bits) << 16;
    *reinterpret_cast<Words*>(p) = w;
}

// The sum over all lanes of a wave, in the same order in every run; each lane has it.
#if IS_NVIDIA
DEVICE float from_lane(float value, u32 other) { return __shfl_sync(0xffffffffu, value, other); }
#else
DEVICE float from_lane(float value, u32 other) {
    return as_float(u32(__builtin_amdgcn_ds_bpermute(i32(other * 4), i32(as_bits(value)))));
}
#endif
DEVICE float wave_sum(float value) {
    UNROLL for (u32 distance = WAVE / 2; distance > 0; distance /= 2)
        value += from_lane(value, (thread_x() % WAVE) ^ distance);
    return value;
}
