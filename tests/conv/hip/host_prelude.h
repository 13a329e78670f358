// The vocabulary of engines/hip/prelude.h for a C++ compiler of the host: a block's threads are fibers that switch at
// barriers, and blocks run one after the other.
// Headers of C alone: those of C++ take longer to compile than a kernel.
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

typedef int32_t i32;
typedef uint32_t u32;
typedef int64_t i64;
typedef uint64_t u64;
typedef uint16_t u16;
typedef uint8_t u8;
#define IS_AMD 0
#define IS_NVIDIA 0
#define RDNA 0
#define WAVE 32
#define KERNEL(threads) static
#define KERNEL_WAVES(threads, waves) static
#define DEVICE static inline
#define SHARED static
#define UNROLL

static u32 current_thread, current_block[3];
static ucontext_t scheduler, fibers[1024];
static char finished[1024];
static void (*call_body)(void*);
static void* body;

static u32 thread_x() { return current_thread; }
static u32 block_x() { return current_block[0]; }
static u32 block_y() { return current_block[1]; }
static u32 block_z() { return current_block[2]; }
static void barrier() { swapcontext(&fibers[current_thread], &scheduler); }

static void fiber() {
    call_body(body);
    finished[current_thread] = 1;
}

template <typename Body> static void call_it(void* it) { (*static_cast<Body*>(it))(); }

template <typename Body> static void run_blocks(u32 grid_x, u32 grid_y, u32 grid_z, u32 threads, Body kernel) {
    const size_t stack = 64 << 10;
    char* const stacks = static_cast<char*>(malloc(stack * threads));
    call_body = call_it<Body>;
    body = &kernel;
    for (u32 z = 0; z < grid_z; ++z)
        for (u32 y = 0; y < grid_y; ++y)
            for (u32 x = 0; x < grid_x; ++x) {
                current_block[0] = x;
                current_block[1] = y;
                current_block[2] = z;
                memset(finished, 0, sizeof finished);
                for (u32 t = 0; t < threads; ++t) {
                    getcontext(&fibers[t]);
                    fibers[t].uc_stack.ss_sp = stacks + stack * t;
                    fibers[t].uc_stack.ss_size = stack;
                    fibers[t].uc_link = &scheduler;
                    makecontext(&fibers[t], fiber, 0);
                }
                // Backwards, so that a missing barrier is not hidden by the usual order.
                for (bool any = true; any;) {
                    any = false;
                    for (u32 t = threads; t-- > 0;)
                        if (!finished[t]) {
                            current_thread = t;
                            swapcontext(&scheduler, &fibers[t]);
                            any = true;
                        }
                }
            }
    free(stacks);
}

struct alignas(8) f2 { float x, y; };
struct alignas(16) f4 { float x, y, z, w; };
// Vector accesses fault on wrong addresses on a GPU: here they are checked.
static void aligned(const void* p, size_t bytes) {
    if (reinterpret_cast<uintptr_t>(p) % bytes) __builtin_trap();
}
static f2 load2(const float* p) { aligned(p, 8); f2 v; memcpy(&v, p, 8); return v; }
static f4 load4(const float* p) { aligned(p, 16); f4 v; memcpy(&v, p, 16); return v; }
static void store2(float* p, f2 v) { aligned(p, 8); memcpy(p, &v, 8); }
static void store4(float* p, f4 v) { aligned(p, 16); memcpy(p, &v, 16); }
static float fma_f(float a, float b, float c) { return fmaf(a, b, c); }
static float max_f(float a, float b) { return fmaxf(a, b); }
static float min_f(float a, float b) { return fminf(a, b); }
static float exp_f(float x) { return expf(x); }
static float rsqrt_f(float x) { return 1.0f / sqrtf(x); }
static float rcp_f(float x) { return 1.0f / x; }
static float sigmoid_f(float x) { return 1.0f / (1.0f + expf(-x)); }
template <int ACT> static float activated(float z, float slope) {
    if (ACT == 1) return z * sigmoid_f(z);
    if (ACT == 2) return z > 0.0f || z != z ? z : 0.0f;
    if (ACT == 3) return z > 0.0f ? z : z * slope;
    return z;
}
// On ARM, GCC knows _Float16 in C++ since 13; this one has the same bits and is converted in the same way.
#if defined(__aarch64__) && !defined(__clang__) && __GNUC__ < 13
typedef __fp16 host_half;
#else
typedef _Float16 host_half;
#endif
struct half_t { host_half value; };
struct bf16_t { u16 bits; };
static float to_float(float value) { return value; }
static float to_float(half_t value) { return float(value.value); }
static float to_float(bf16_t value) { u32 bits = u32(value.bits) << 16; float f; memcpy(&f, &bits, 4); return f; }
template <typename T> struct Storage;
template <> struct Storage<float> { static float from(float value) { return value; } };
template <> struct Storage<half_t> { static half_t from(float value) { return half_t{host_half(value)}; } };
template <> struct Storage<bf16_t> {
    static bf16_t from(float value) {
        u32 bits;
        memcpy(&bits, &value, 4);
        return bf16_t{u16((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
    }
};
template <typename T> static T from_float(float value) { return Storage<T>::from(value); }
template <typename T> static f4 load4f(const T* p) {
    aligned(p, 4 * sizeof(T));
    return f4{to_float(p[0]), to_float(p[1]), to_float(p[2]), to_float(p[3])};
}
template <typename T> static void store4f(T* p, f4 v) {
    aligned(p, 4 * sizeof(T));
    p[0] = from_float<T>(v.x);
    p[1] = from_float<T>(v.y);
    p[2] = from_float<T>(v.z);
    p[3] = from_float<T>(v.w);
}
