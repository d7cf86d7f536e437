// CUDA's built-ins for a kernel that g++ compiles: what CubeCL's CUDA dialect uses of them. It
// stands before the kernel, which nvrtc.c has rewritten: the kernel's first parameter is
// `fake_self`, the thread that runs it. No system header may come in, since the kernel defines
// the fixed-width integers in CUDA's way.
#include "fibers.h"

typedef __SIZE_TYPE__ size_t;
typedef signed char fake_s8;
typedef unsigned char fake_u8;
typedef unsigned short fake_u16;
typedef unsigned fake_u32;
typedef unsigned long long fake_u64;
typedef long long fake_s64;
extern "C" int printf(const char *, ...);

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __cluster_dims__(...)
#define __align__(n) alignas(n)
// Buffers of an in-place kernel may be the same memory.
#define __restrict__
#define __NV_ATOMIC_RELAXED 0

// ----------------------------------------------------------------- accesses

// nvrtc.c compiles with -fsanitize=thread, which calls one of these functions before each access to
// memory that is not the thread's own.
static const fake_watch *fake_watched;
#define FAKE_HOOK extern "C" __attribute__((no_sanitize("thread"), used, visibility("hidden")))

__attribute__((no_sanitize("thread"), always_inline)) static inline void fake_access(
    const void *address, size_t bytes, bool writes) {
    const fake_watch *watch = fake_watched;
    size_t offset = (size_t)((const char *)address - watch->memory);
    // Memory of the block or of the thread.
    if (offset >= watch->bytes) return;
    for (size_t i = offset / 4; i <= (offset + bytes - 1) / 4; i++) {
        fake_cell *cell = &watch->cells[i];
        if (cell->write != watch->epoch && (writes || cell->read[0] != watch->epoch)) watch->check(cell, writes);
    }
}
#define FAKE_ACCESS(n)                                                                         \
    FAKE_HOOK void __tsan_read##n(void *p) { fake_access(p, n, false); }                       \
    FAKE_HOOK void __tsan_write##n(void *p) { fake_access(p, n, true); }                       \
    FAKE_HOOK void __tsan_unaligned_read##n(void *p) { fake_access(p, n, false); }             \
    FAKE_HOOK void __tsan_unaligned_write##n(void *p) { fake_access(p, n, true); }
FAKE_ACCESS(1) FAKE_ACCESS(2) FAKE_ACCESS(4) FAKE_ACCESS(8) FAKE_ACCESS(16)
#undef FAKE_ACCESS
FAKE_HOOK void __tsan_read_range(void *p, size_t bytes) { if (bytes) fake_access(p, bytes, false); }
FAKE_HOOK void __tsan_write_range(void *p, size_t bytes) { if (bytes) fake_access(p, bytes, true); }
FAKE_HOOK void __tsan_init() {}

// An atomic operation counts as a write.
#define FAKE_ATOMIC(bits, T)                                                                   \
    FAKE_HOOK T __tsan_atomic##bits##_load(const volatile T *p, int order) {                   \
        fake_access((const void *)p, sizeof(T), false);                                        \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                           \
    }                                                                                          \
    FAKE_HOOK bool __tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *old, T value, int, int) { \
        fake_access((const void *)p, sizeof(T), true);                                         \
        return __atomic_compare_exchange_n(p, old, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
    }
FAKE_ATOMIC(8, fake_u8) FAKE_ATOMIC(16, fake_u16) FAKE_ATOMIC(32, fake_u32) FAKE_ATOMIC(64, fake_u64)
#undef FAKE_ATOMIC
#undef FAKE_HOOK

// ------------------------------------------------------------------ threads

#define threadIdx (fake_self->thread)
#define blockIdx (fake_self->block)
#define blockDim (fake_self->block_size)
#define gridDim (fake_self->grid)
#define warpSize 32

typedef fake_uint3 uint3;

#define __syncthreads() (fake_self->operations->sync_block(fake_self, __COUNTER__))
// Threads of a grid run on one thread.
#define __threadfence() ((void)0)
#define __threadfence_block() __threadfence()

// The dialect always passes __activemask(), which is the group of lanes that meet: the macros
// drop it.
#define fake_meet(operation, value, argument) \
    (fake_self->operations->meet(fake_self, __COUNTER__, operation, value, argument))
#define __syncwarp(...) ((void)fake_meet(FAKE_SYNC, 0, 0))
#define __activemask() ((unsigned)fake_meet(FAKE_ACTIVE, 0, 0))
#define __ballot_sync(mask, value) ((unsigned)fake_meet(FAKE_BALLOT, !!(value), 0))
#define __all_sync(mask, value) ((int)fake_meet(FAKE_ALL, !!(value), 0))
#define __any_sync(mask, value) ((int)fake_meet(FAKE_ANY, !!(value), 0))
#define fake_shuffle(operation, value, argument)                                            \
    ([&] {                                                                                  \
        auto const fake_value = (value);                                                    \
        return fake_from_bits<decltype(fake_value)>(                                        \
            fake_meet(operation, fake_bits(fake_value), (int)(argument)));                  \
    }())
#define __shfl_sync(mask, value, lane) fake_shuffle(FAKE_SHUFFLE, value, lane)
#define __shfl_xor_sync(mask, value, lanes) fake_shuffle(FAKE_SHUFFLE_XOR, value, lanes)
#define __shfl_up_sync(mask, value, delta) fake_shuffle(FAKE_SHUFFLE_UP, value, delta)
#define __shfl_down_sync(mask, value, delta) fake_shuffle(FAKE_SHUFFLE_DOWN, value, delta)

template <class T> struct fake_plain { typedef T type; };
template <class T> struct fake_plain<const T> { typedef T type; };

template <class T> inline fake_u64 fake_bits(const T &value) {
    static_assert(sizeof(T) <= 8, "a shuffle of more than 64 bits");
    fake_u64 bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <class T> inline typename fake_plain<T>::type fake_from_bits(fake_u64 bits) {
    typename fake_plain<T>::type value;
    __builtin_memcpy(&value, &bits, sizeof value);
    return value;
}

// -------------------------------------------------------------- arithmetic

#define FAKE_UNARY(name)                                              \
    inline float name(float x) { return __builtin_##name##f(x); }     \
    inline double name(double x) { return __builtin_##name(x); }
FAKE_UNARY(exp) FAKE_UNARY(log) FAKE_UNARY(sin) FAKE_UNARY(cos) FAKE_UNARY(tan) FAKE_UNARY(tanh)
FAKE_UNARY(sinh) FAKE_UNARY(cosh) FAKE_UNARY(acos) FAKE_UNARY(asin) FAKE_UNARY(atan)
FAKE_UNARY(asinh) FAKE_UNARY(acosh) FAKE_UNARY(atanh) FAKE_UNARY(sqrt) FAKE_UNARY(expm1)
FAKE_UNARY(log1p) FAKE_UNARY(erf) FAKE_UNARY(ceil) FAKE_UNARY(floor) FAKE_UNARY(trunc)
FAKE_UNARY(rint) FAKE_UNARY(fabs)
#undef FAKE_UNARY

#define FAKE_BINARY(name)                                                             \
    inline float name(float x, float y) { return __builtin_##name##f(x, y); }         \
    inline double name(double x, double y) { return __builtin_##name(x, y); }
FAKE_BINARY(fmod) FAKE_BINARY(atan2) FAKE_BINARY(hypot) FAKE_BINARY(fmin) FAKE_BINARY(fmax)
FAKE_BINARY(copysign)
#undef FAKE_BINARY

inline float fminf(float x, float y) { return __builtin_fminf(x, y); }
inline float fmaxf(float x, float y) { return __builtin_fmaxf(x, y); }
inline float sqrtf(float x) { return __builtin_sqrtf(x); }
inline float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / __builtin_sqrt(x); }
inline float rhypotf(float x, float y) { return 1.0f / __builtin_hypotf(x, y); }
inline double rhypot(double x, double y) { return 1.0 / __builtin_hypot(x, y); }
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float pow(float x, float y) { return __builtin_powf(x, y); }
inline double pow(double x, double y) { return __builtin_pow(x, y); }
inline float pow(float x, int y) { return __builtin_powf(x, (float)y); }
inline float pow(float x, unsigned y) { return __builtin_powf(x, (float)y); }
inline float pow(float x, fake_s64 y) { return __builtin_powf(x, (float)y); }
inline float pow(float x, fake_u64 y) { return __builtin_powf(x, (float)y); }
inline double pow(double x, int y) { return __builtin_pow(x, y); }
inline double pow(double x, unsigned y) { return __builtin_pow(x, y); }
inline double pow(double x, fake_s64 y) { return __builtin_pow(x, (double)y); }
inline double pow(double x, fake_u64 y) { return __builtin_pow(x, (double)y); }

inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }

inline int abs(int x) { return x < 0 ? (int)-(unsigned)x : x; }
inline fake_s64 abs(fake_s64 x) { return x < 0 ? (fake_s64)-(fake_u64)x : x; }

template <class T> inline T min(T x, T y) { return y < x ? y : x; }
template <class T> inline T max(T x, T y) { return x < y ? y : x; }
// A number wins over NaN.
inline float min(float x, float y) { return __builtin_fminf(x, y); }
inline float max(float x, float y) { return __builtin_fmaxf(x, y); }
inline double min(double x, double y) { return __builtin_fmin(x, y); }
inline double max(double x, double y) { return __builtin_fmax(x, y); }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(fake_u64 x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(fake_s64 x) { return x ? __builtin_clzll((fake_u64)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(fake_s64 x) { return __builtin_ffsll(x); }
inline fake_u64 __brevll(fake_u64 x) {
    x = (x & 0x5555555555555555) << 1 | (x >> 1 & 0x5555555555555555);
    x = (x & 0x3333333333333333) << 2 | (x >> 2 & 0x3333333333333333);
    x = (x & 0x0f0f0f0f0f0f0f0f) << 4 | (x >> 4 & 0x0f0f0f0f0f0f0f0f);
    return __builtin_bswap64(x);
}
inline unsigned __brev(unsigned x) { return (unsigned)(__brevll(x) >> 32); }
inline int __mulhi(int x, int y) { return (int)((fake_s64)x * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((fake_u64)x * y >> 32); }
inline fake_s64 __mul64hi(fake_s64 x, fake_s64 y) { return (fake_s64)((__int128)x * y >> 64); }
inline fake_u64 __umul64hi(fake_u64 x, fake_u64 y) {
    return (fake_u64)((unsigned __int128)x * y >> 64);
}
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8) c += (fake_s8)(a >> i) * (fake_s8)(b >> i);
    return c;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 32; i += 8) c += (fake_u8)(a >> i) * (fake_u8)(b >> i);
    return c;
}

// --------------------------------------------------------- half precision

inline fake_u16 fake_encode_f16(float x) {
    _Float16 value = (_Float16)x;
    return __builtin_bit_cast(fake_u16, value);
}
inline fake_u16 fake_encode_f16(double x) {
    _Float16 value = (_Float16)x;
    return __builtin_bit_cast(fake_u16, value);
}
inline float fake_decode_f16(fake_u16 bits) { return (float)__builtin_bit_cast(_Float16, bits); }

inline fake_u16 fake_encode_bf16(float x) {
    unsigned bits = __builtin_bit_cast(unsigned, x);
    if (__builtin_isnan(x)) return 0x7fff;
    return (fake_u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
// By way of a float that is rounded to odd, so that only the second rounding counts.
inline fake_u16 fake_encode_bf16(double x) {
    float f = (float)x;
    unsigned bits = __builtin_bit_cast(unsigned, f);
    if ((double)f != x && !__builtin_isnan(x) && !__builtin_isinf(f) && !(bits & 1))
        bits += ((double)f < x) == (x > 0) ? 1 : -1;
    return fake_encode_bf16(__builtin_bit_cast(float, bits));
}
inline float fake_decode_bf16(fake_u16 bits) {
    return __builtin_bit_cast(float, (unsigned)bits << 16);
}

#define FAKE_HALF(T, encode, decode)                                                         \
    struct alignas(2) T {                                                                    \
        fake_u16 bits;                                                                       \
        T() = default;                                                                       \
        T(float x) : bits(encode(x)) {}                                                      \
        T(double x) : bits(encode(x)) {}                                                     \
        T(bool x) : T((float)x) {}                                                           \
        T(signed char x) : T((float)x) {}                                                    \
        T(unsigned char x) : T((float)x) {}                                                  \
        T(short x) : T((float)x) {}                                                          \
        T(unsigned short x) : T((float)x) {}                                                 \
        T(int x) : T((double)x) {}                                                           \
        T(unsigned x) : T((double)x) {}                                                      \
        T(long x) : T((double)x) {}                                                          \
        T(unsigned long x) : T((double)x) {}                                                 \
        T(long long x) : T((double)x) {}                                                     \
        T(unsigned long long x) : T((double)x) {}                                            \
        operator float() const { return decode(bits); }                                      \
    };                                                                                       \
    inline T operator+(T x, T y) { return T((float)x + (float)y); }                          \
    inline T operator-(T x, T y) { return T((float)x - (float)y); }                          \
    inline T operator*(T x, T y) { return T((float)x * (float)y); }                          \
    inline T operator/(T x, T y) { return T((float)x / (float)y); }                          \
    inline T &operator+=(T &x, T y) { return x = x + y; }                                    \
    inline T &operator-=(T &x, T y) { return x = x - y; }                                    \
    inline T &operator*=(T &x, T y) { return x = x * y; }                                    \
    inline T &operator/=(T &x, T y) { return x = x / y; }                                    \
    inline T operator-(T x) { x.bits ^= 0x8000; return x; }                                  \
    inline bool operator==(T x, T y) { return (float)x == (float)y; }                        \
    inline bool operator!=(T x, T y) { return (float)x != (float)y; }                        \
    inline bool operator<(T x, T y) { return (float)x < (float)y; }                          \
    inline bool operator<=(T x, T y) { return (float)x <= (float)y; }                        \
    inline bool operator>(T x, T y) { return (float)x > (float)y; }                          \
    inline bool operator>=(T x, T y) { return (float)x >= (float)y; }                        \
    inline T __hfma(T x, T y, T z) { return T((double)(float)x * (float)y + (float)z); }     \
    inline T __habs(T x) { x.bits &= 0x7fff; return x; }                                     \
    inline bool __hisnan(T x) { return isnan((float)x); }                                    \
    inline bool __hisinf(T x) { return isinf((float)x); }                                    \
    inline T __hmin(T x, T y) { return T(min((float)x, (float)y)); }                         \
    inline T __hmax(T x, T y) { return T(max((float)x, (float)y)); }                         \
    inline T __hmin_nan(T x, T y) { return __hisnan(x) ? x : __hisnan(y) ? y : __hmin(x, y); } \
    inline T __hmax_nan(T x, T y) { return __hisnan(x) ? x : __hisnan(y) ? y : __hmax(x, y); } \
    inline T hexp(T x) { return T(exp((float)x)); }                                          \
    inline T hlog(T x) { return T(log((float)x)); }                                          \
    inline T hsin(T x) { return T(sin((float)x)); }                                          \
    inline T hcos(T x) { return T(cos((float)x)); }                                          \
    inline T htanh(T x) { return T(tanh((float)x)); }                                        \
    inline T hsqrt(T x) { return T(sqrt((float)x)); }                                        \
    inline T hrsqrt(T x) { return T(rsqrt((float)x)); }                                      \
    inline T hceil(T x) { return T(ceil((float)x)); }                                        \
    inline T hfloor(T x) { return T(floor((float)x)); }                                      \
    inline T htrunc(T x) { return T(trunc((float)x)); }                                      \
    inline T hrint(T x) { return T(rint((float)x)); }
FAKE_HALF(__half, fake_encode_f16, fake_decode_f16)
FAKE_HALF(__nv_bfloat16, fake_encode_bf16, fake_decode_bf16)
#undef FAKE_HALF

#define FAKE_PAIR_1(P, name, of) inline P name(P a) { return P(of(a.x), of(a.y)); }
#define FAKE_PAIR_2(P, name, of) inline P name(P a, P b) { return P(of(a.x, b.x), of(a.y, b.y)); }
#define FAKE_PAIR(P, T)                                                                      \
    struct alignas(4) P {                                                                    \
        T x, y;                                                                              \
        P() = default;                                                                       \
        P(T a, T b) : x(a), y(b) {}                                                          \
        explicit P(T a) : x(a), y(a) {}                                                      \
    };                                                                                       \
    inline P operator+(P a, P b) { return P(a.x + b.x, a.y + b.y); }                         \
    inline P operator-(P a, P b) { return P(a.x - b.x, a.y - b.y); }                         \
    inline P operator*(P a, P b) { return P(a.x * b.x, a.y * b.y); }                         \
    inline P operator/(P a, P b) { return P(a.x / b.x, a.y / b.y); }                         \
    inline P operator-(P a) { return P(-a.x, -a.y); }                                        \
    inline bool operator==(P a, P b) { return a.x == b.x && a.y == b.y; }                    \
    inline bool operator!=(P a, P b) { return a.x != b.x && a.y != b.y; }                    \
    inline P __hfma2(P a, P b, P c) { return P(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)); } \
    FAKE_PAIR_1(P, __habs2, __habs)                                                          \
    FAKE_PAIR_2(P, __hmin2, __hmin) FAKE_PAIR_2(P, __hmax2, __hmax)                          \
    FAKE_PAIR_2(P, __hmin2_nan, __hmin_nan) FAKE_PAIR_2(P, __hmax2_nan, __hmax_nan)          \
    FAKE_PAIR_1(P, h2exp, hexp) FAKE_PAIR_1(P, h2log, hlog) FAKE_PAIR_1(P, h2sin, hsin)      \
    FAKE_PAIR_1(P, h2cos, hcos) FAKE_PAIR_1(P, h2tanh, htanh) FAKE_PAIR_1(P, h2sqrt, hsqrt)  \
    FAKE_PAIR_1(P, h2rsqrt, hrsqrt) FAKE_PAIR_1(P, h2ceil, hceil)                            \
    FAKE_PAIR_1(P, h2floor, hfloor) FAKE_PAIR_1(P, h2trunc, htrunc)                          \
    FAKE_PAIR_1(P, h2rint, hrint)                                                            \
    inline P __h2isnan(P a) { return P(T(__hisnan(a.x)), T(__hisnan(a.y))); }
FAKE_PAIR(__half2, __half)
FAKE_PAIR(__nv_bfloat162, __nv_bfloat16)
#undef FAKE_PAIR
#undef FAKE_PAIR_1
#undef FAKE_PAIR_2

// -------------------------------------------------- conversions to integers

// The device's conversions saturate and take NaN as 0; those to 8 and 16 bits first go to 32.
template <class T> struct fake_integer {
    static constexpr bool is_signed = (T)-1 < (T)0;
    static constexpr T largest = is_signed ? (T)(((fake_u64)1 << (sizeof(T) * 8 - 1)) - 1) : (T)-1;
    static constexpr T smallest = is_signed ? (T)(-largest - 1) : (T)0;
};
template <class T, class F> inline T fake_saturate(F x) {
    typedef fake_integer<T> Limits;
    // 2 to the number of value bits: `largest` itself may not be a float.
    const F end = (F)(Limits::largest / 2 + 1) * 2;
    if (x != x) return 0;
    if (x >= end) return Limits::largest;
    return x <= (F)Limits::smallest ? Limits::smallest : (T)x;
}
template <class T> struct fake_wide { typedef T type; };
template <> struct fake_wide<fake_s8> { typedef int type; };
template <> struct fake_wide<short> { typedef int type; };
template <> struct fake_wide<fake_u8> { typedef fake_u32 type; };
template <> struct fake_wide<fake_u16> { typedef fake_u32 type; };

// nvrtc.c makes a call of it of a cast of a value to an integer type.
template <class T, class F> inline T fake_cast(F x) { return T(x); }
template <class T> inline T fake_cast(float x) {
    return (T)fake_saturate<typename fake_wide<T>::type>(x);
}
template <class T> inline T fake_cast(double x) {
    return (T)fake_saturate<typename fake_wide<T>::type>(x);
}
template <class T> inline T fake_cast(__half x) { return fake_cast<T>((float)x); }
template <class T> inline T fake_cast(__nv_bfloat16 x) { return fake_cast<T>((float)x); }

// ----------------------------------------------------------------- atomics

// Of a type that the compiler has no atomic operation for: compares and swaps its bits.
template <size_t> struct fake_word;
template <> struct fake_word<1> { typedef fake_u8 type; };
template <> struct fake_word<2> { typedef fake_u16 type; };
template <> struct fake_word<4> { typedef fake_u32 type; };
template <> struct fake_word<8> { typedef fake_u64 type; };

template <class T, class F> inline T fake_update(T *pointer, F change) {
    typedef typename fake_word<sizeof(T)>::type Word;
    Word *word = reinterpret_cast<Word *>(pointer);
    Word old = __atomic_load_n(word, __ATOMIC_RELAXED), next;
    do {
        T value = change(fake_from_bits<T>(old));
        next = (Word)fake_bits(value);
    } while (!__atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_RELAXED,
                                          __ATOMIC_RELAXED));
    return fake_from_bits<T>(old);
}

template <class T> inline T atomicExch(T *p, typename fake_plain<T>::type v) {
    return fake_update(p, [&](T) { return v; });
}
template <class T>
inline T atomicCAS(T *p, typename fake_plain<T>::type compare, typename fake_plain<T>::type v) {
    return fake_update(p, [&](T old) { return old == compare ? v : old; });
}
template <class T> inline T atomicAdd(T *p, typename fake_plain<T>::type v) {
    return fake_update(p, [&](T old) { return (T)(old + v); });
}
template <class T> inline T atomicMin(T *p, typename fake_plain<T>::type v) {
    return fake_update(p, [&](T old) { return min(old, v); });
}
template <class T> inline T atomicMax(T *p, typename fake_plain<T>::type v) {
    return fake_update(p, [&](T old) { return max(old, v); });
}
template <class T> inline T atomicAnd(T *p, typename fake_plain<T>::type v) {
    return fake_update(p, [&](T old) { return (T)(old & v); });
}
template <class T> inline T atomicOr(T *p, typename fake_plain<T>::type v) {
    return fake_update(p, [&](T old) { return (T)(old | v); });
}
template <class T> inline T atomicXor(T *p, typename fake_plain<T>::type v) {
    return fake_update(p, [&](T old) { return (T)(old ^ v); });
}

// Inline PTX: nvrtc.c makes a call of each instruction, named by its mnemonic, with the outputs
// first. Registers of half types are integers.
#define FAKE_ATOM(name, Register, T, function)                                               \
    template <class P> inline void fake_ptx_atom_relaxed_##name(Register &out, P *p, Register v) { \
        out = fake_from_bits<Register>(                                                      \
            fake_bits(fake_update((T *)p, [&](T old) {                                       \
                return function(old, fake_from_bits<T>(fake_bits(v)));                       \
            })));                                                                            \
    }
#define FAKE_ADD(x, y) ((x) + (y))
FAKE_ATOM(add_u32, fake_u32, fake_u32, FAKE_ADD) FAKE_ATOM(add_u32, int, fake_u32, FAKE_ADD)
FAKE_ATOM(add_u64, fake_u64, fake_u64, FAKE_ADD) FAKE_ATOM(add_u64, fake_s64, fake_u64, FAKE_ADD)
FAKE_ATOM(add_f32, float, float, FAKE_ADD) FAKE_ATOM(add_f64, double, double, FAKE_ADD)
FAKE_ATOM(add_noftz_f16, fake_u16, __half, FAKE_ADD)
FAKE_ATOM(add_noftz_bf16, fake_u16, __nv_bfloat16, FAKE_ADD)
FAKE_ATOM(add_noftz_f16x2, fake_u32, __half2, FAKE_ADD)
FAKE_ATOM(add_noftz_bf16x2, fake_u32, __nv_bfloat162, FAKE_ADD)
#define FAKE_EXTREME(name, scalar, pair)                                                     \
    FAKE_ATOM(name##_u32, fake_u32, fake_u32, scalar) FAKE_ATOM(name##_s32, int, int, scalar) \
    FAKE_ATOM(name##_u64, fake_u64, fake_u64, scalar)                                        \
    FAKE_ATOM(name##_s64, fake_s64, fake_s64, scalar)                                        \
    FAKE_ATOM(name##_f32, float, float, scalar) FAKE_ATOM(name##_f64, double, double, scalar) \
    FAKE_ATOM(name##_noftz_f16, fake_u16, __half, __h##scalar)                               \
    FAKE_ATOM(name##_noftz_bf16, fake_u16, __nv_bfloat16, __h##scalar)                       \
    FAKE_ATOM(name##_noftz_f16x2, fake_u32, __half2, pair)                                   \
    FAKE_ATOM(name##_noftz_bf16x2, fake_u32, __nv_bfloat162, pair)
FAKE_EXTREME(min, min, __hmin2)
FAKE_EXTREME(max, max, __hmax2)
#undef FAKE_EXTREME
#undef FAKE_ADD
#undef FAKE_ATOM

// A relaxed vector operation is one operation per element.
#define FAKE_ATOM_V2(name, R)                                                                \
    template <class P> inline void fake_ptx_atom_relaxed_##name(R &o0, R &o1, P *p, R a, R b) { \
        fake_ptx_atom_relaxed_add_f32(o0, (R *)p, a);                                        \
        fake_ptx_atom_relaxed_add_f32(o1, (R *)p + 1, b);                                    \
    }
FAKE_ATOM_V2(add_v2_f32, float)
#undef FAKE_ATOM_V2
template <class P>
inline void fake_ptx_atom_relaxed_add_v4_f32(float &o0, float &o1, float &o2, float &o3, P *p,
                                             float a, float b, float c, float d) {
    fake_ptx_atom_relaxed_add_v2_f32(o0, o1, (float *)p, a, b);
    fake_ptx_atom_relaxed_add_v2_f32(o2, o3, (float *)p + 2, c, d);
}

inline void fake_ptx_add_sat_s32(int &out, int x, int y) {
    if (__builtin_add_overflow(x, y, &out)) out = x < 0 ? -__INT_MAX__ - 1 : __INT_MAX__;
}
inline void fake_ptx_sub_sat_s32(int &out, int x, int y) {
    if (__builtin_sub_overflow(x, y, &out)) out = x < 0 ? -__INT_MAX__ - 1 : __INT_MAX__;
}
inline void fake_ptx_min_NaN_f32(float &out, float x, float y) {
    out = isnan(x) ? x : isnan(y) ? y : min(x, y);
}
inline void fake_ptx_max_NaN_f32(float &out, float x, float y) {
    out = isnan(x) ? x : isnan(y) ? y : max(x, y);
}

template <class T> inline void __nv_atomic_load(const T *p, T *value, int) {
    __builtin_memcpy(value, p, sizeof(T));
}

// ------------------------------------------------------------ tensor cores

inline unsigned fake_lane(const fake_thread *self) {
    const fake_uint3 &at = self->thread, &size = self->block_size;
    return (at.x + size.x * (at.y + size.y * at.z)) % FAKE_WARP;
}

#define load_matrix_sync(...) fake_load_matrix(fake_self, __COUNTER__, __VA_ARGS__)
#define store_matrix_sync(...) fake_store_matrix(fake_self, __COUNTER__, __VA_ARGS__)
#define mma_sync(...) fake_mma(fake_self, __COUNTER__, __VA_ARGS__)

namespace nvcuda { namespace wmma {
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
namespace precision { struct tf32 {}; }
enum layout_t { mem_row_major, mem_col_major };

template <class T> struct fake_element {
    typedef T type;
    static inline T operand(T x) { return x; }
};
template <> struct fake_element<precision::tf32> {
    typedef float type;
    // The hardware ignores the lower bits.
    static inline float operand(float x) {
        return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, x) & 0xffffe000u);
    }
};
template <class Use, int M, int N, int K> struct fake_shape;
template <int M, int N, int K> struct fake_shape<matrix_a, M, N, K> {
    static constexpr int rows = M, columns = K;
};
template <int M, int N, int K> struct fake_shape<matrix_b, M, N, K> {
    static constexpr int rows = K, columns = N;
};
template <int M, int N, int K> struct fake_shape<accumulator, M, N, K> {
    static constexpr int rows = M, columns = N;
};

// Element t of lane l is number 32 * t + l of the matrix in rows.
template <class Use, int M, int N, int K, class T, class Layout = void> struct fragment {
    typedef fake_shape<Use, M, N, K> shape;
    typedef typename fake_element<T>::type element;
    static constexpr int num_elements = shape::rows * shape::columns / FAKE_WARP;
    element x[num_elements];
};

template <class T> struct fake_is_column { static constexpr bool value = false; };
template <> struct fake_is_column<col_major> { static constexpr bool value = true; };

// Calls `act` for the elements of a lane with their offsets in memory.
template <class F, class Act>
inline void fake_each(const fake_thread *self, unsigned stride, bool in_columns, Act act) {
    for (int t = 0; t < F::num_elements; t++) {
        unsigned number = (unsigned)t * FAKE_WARP + fake_lane(self);
        unsigned row = number / F::shape::columns, column = number % F::shape::columns;
        act(t, in_columns ? (size_t)column * stride + row : (size_t)row * stride + column);
    }
}

template <class Use, int M, int N, int K, class T, class Layout, class P>
inline void fake_load_matrix(fake_thread *self, unsigned site,
                             fragment<Use, M, N, K, T, Layout> &to, P *from, unsigned stride,
                             layout_t layout = mem_row_major) {
    self->operations->meet(self, site, FAKE_SYNC, 0, 0);
    fake_each<fragment<Use, M, N, K, T, Layout>>(
        self, stride, fake_is_column<Layout>::value || layout == mem_col_major,
        [&](int t, size_t at) { to.x[t] = from[at]; });
}
template <class Use, int M, int N, int K, class T, class Layout, class P>
inline void fake_store_matrix(fake_thread *self, unsigned site, P *to,
                              const fragment<Use, M, N, K, T, Layout> &from, unsigned stride,
                              layout_t layout = mem_row_major) {
    self->operations->meet(self, site, FAKE_SYNC, 0, 0);
    fake_each<fragment<Use, M, N, K, T, Layout>>(
        self, stride, fake_is_column<Layout>::value || layout == mem_col_major,
        [&](int t, size_t at) { to[at] = from.x[t]; });
}
template <class Use, int M, int N, int K, class T, class Layout, class V>
inline void fill_fragment(fragment<Use, M, N, K, T, Layout> &to, V value) {
    for (auto &element : to.x) element = value;
}

// What products are summed in.
template <class T> struct fake_sum { typedef float type; };
template <> struct fake_sum<int> { typedef int type; };

template <int M, int N, int K, class T, class LayoutA, class LayoutB, class R, class S>
inline void fake_mma(fake_thread *self, unsigned site, fragment<accumulator, M, N, K, R> &d,
                     const fragment<matrix_a, M, N, K, T, LayoutA> &a,
                     const fragment<matrix_b, M, N, K, T, LayoutB> &b,
                     const fragment<accumulator, M, N, K, S> &c) {
    typedef fragment<matrix_a, M, N, K, T, LayoutA> A;
    typedef fragment<matrix_b, M, N, K, T, LayoutB> B;
    typedef typename fake_sum<R>::type Sum;
    const void *mine[] = {&a, &b};
    const void **const *all = (const void **const *)self->operations->meet(
        self, site, FAKE_GATHER, (fake_u64)(size_t)mine, 0);
    for (int t = 0; t < d.num_elements; t++) {
        int number = t * FAKE_WARP + (int)fake_lane(self), row = number / N, column = number % N;
        Sum sum = (Sum)c.x[t];
        for (int k = 0; k < K; k++) {
            int i = row * K + k, j = k * N + column;
            auto x = static_cast<const A *>(all[i % FAKE_WARP][0])->x[i / FAKE_WARP];
            auto y = static_cast<const B *>(all[j % FAKE_WARP][1])->x[j / FAKE_WARP];
            sum += (Sum)fake_element<T>::operand(x) * (Sum)fake_element<T>::operand(y);
        }
        d.x[t] = (R)sum;
    }
    // No lane changes its operands before all have read them.
    self->operations->meet(self, site, FAKE_SYNC, 0, 0);
}

// To the nearest, ties away from zero.
inline float __float_to_tf32(float x) {
    unsigned bits = __builtin_bit_cast(unsigned, x);
    if ((bits & 0x7f800000) == 0x7f800000) return x;
    return __builtin_bit_cast(float, (bits + 0x1000) & 0xffffe000u);
}
} }

// `mma.sync` and `ldmatrix`, with the layouts of fragments that the PTX manual gives for m16n8.
// Register r of A holds row `group + 8 * (r & 1)`, register r of B column `group`; each has as many
// consecutive elements of k as fit into 32 bits, from `(r / 2) * 4` resp. `r * 4` registers on.
struct fake_operand_f16 {
    static constexpr int count = 2;
    typedef float sum;
    static inline float get(fake_u32 bits, int i) { return fake_decode_f16((fake_u16)(bits >> 16 * i)); }
};
struct fake_operand_bf16 {
    static constexpr int count = 2;
    typedef float sum;
    static inline float get(fake_u32 bits, int i) { return fake_decode_bf16((fake_u16)(bits >> 16 * i)); }
};
struct fake_operand_tf32 {
    static constexpr int count = 1;
    typedef float sum;
    static inline float get(fake_u32 bits, int) { return __builtin_bit_cast(float, bits & 0xffffe000u); }
};
struct fake_operand_s8 {
    static constexpr int count = 4;
    typedef int sum;
    static inline int get(fake_u32 bits, int i) { return (fake_s8)(bits >> 8 * i); }
};
struct fake_operand_u8 {
    static constexpr int count = 4;
    typedef int sum;
    static inline int get(fake_u32 bits, int i) { return (fake_u8)(bits >> 8 * i); }
};

// Sums into `c`, by lanes as the result. `a` and `b` are the registers of this lane.
template <class A, class B, int K, class Sum>
inline void fake_mma_16_8(fake_thread *self, unsigned site, const fake_u32 *a, const fake_u32 *b, Sum *c) {
    constexpr int per_row = A::count * 4;
    const fake_u32 *mine[] = {a, b};
    const fake_u32 *const *const *all = (const fake_u32 *const *const *)self->operations->meet(
        self, site, FAKE_GATHER, (fake_u64)(size_t)mine, 0);
    const int lane = (int)fake_lane(self);
    for (int i = 0; i < 4; i++) {
        const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
        Sum sum = c[i];
        for (int k = 0; k < K; k++) {
            const int part = k / per_row, quad = k % per_row / A::count, element = k % A::count;
            const fake_u32 x = all[row % 8 * 4 + quad][0][part * 2 + row / 8];
            const fake_u32 y = all[column * 4 + quad][1][part];
            sum += (Sum)A::get(x, element) * (Sum)B::get(y, element);
        }
        c[i] = sum;
    }
    // No lane leaves before all have read its registers.
    self->operations->meet(self, site, FAKE_SYNC, 0, 0);
}

#define FAKE_WORD(x) ((fake_u32)fake_bits(x))
// With four registers of A and two of B, or half of them.
#define FAKE_MMA_4(name, A, B, K, D)                                                          \
    template <class RA, class RB>                                                             \
    inline void fake_ptx_mma_sync_aligned_m16n8##name(                                        \
        fake_thread *self, unsigned site, D &d0, D &d1, D &d2, D &d3, RA a0, RA a1, RA a2, RA a3, \
        RB b0, RB b1, D c0, D c1, D c2, D c3) {                                               \
        const fake_u32 a[] = {FAKE_WORD(a0), FAKE_WORD(a1), FAKE_WORD(a2), FAKE_WORD(a3)};    \
        const fake_u32 b[] = {FAKE_WORD(b0), FAKE_WORD(b1)};                                  \
        fake_operand_##A::sum c[] = {c0, c1, c2, c3};                                         \
        fake_mma_16_8<fake_operand_##A, fake_operand_##B, K>(self, site, a, b, c);            \
        d0 = c[0], d1 = c[1], d2 = c[2], d3 = c[3];                                           \
    }
FAKE_MMA_4(k16_row_col_f32_f16_f16_f32, f16, f16, 16, float)
FAKE_MMA_4(k16_row_col_f32_bf16_bf16_f32, bf16, bf16, 16, float)
FAKE_MMA_4(k8_row_col_f32_tf32_tf32_f32, tf32, tf32, 8, float)
#define FAKE_MMA_INT(D)                                                                       \
    FAKE_MMA_4(k32_row_col_s32_s8_s8_s32, s8, s8, 32, D)                                      \
    FAKE_MMA_4(k32_row_col_s32_u8_u8_s32, u8, u8, 32, D)                                      \
    FAKE_MMA_4(k32_row_col_s32_s8_u8_s32, s8, u8, 32, D)                                      \
    FAKE_MMA_4(k32_row_col_s32_u8_s8_s32, u8, s8, 32, D)
FAKE_MMA_INT(int)
FAKE_MMA_INT(fake_u32)
template <class RA, class RB>
inline void fake_ptx_mma_sync_aligned_m16n8k8_row_col_f32_f16_f16_f32(
    fake_thread *self, unsigned site, float &d0, float &d1, float &d2, float &d3, RA a0, RA a1, RB b0,
    float c0, float c1, float c2, float c3) {
    const fake_u32 a[] = {FAKE_WORD(a0), FAKE_WORD(a1)}, b[] = {FAKE_WORD(b0)};
    float c[] = {c0, c1, c2, c3};
    fake_mma_16_8<fake_operand_f16, fake_operand_f16, 8>(self, site, a, b, c);
    d0 = c[0], d1 = c[1], d2 = c[2], d3 = c[3];
}

// Addresses in shared memory count from its beginning.
#define __cvta_generic_to_shared(pointer) ((fake_u32)((const char *)(pointer) - fake_self->shared))

template <int N> inline void fake_load_rows(fake_thread *self, unsigned site, fake_u32 address,
                                            bool transposed, fake_u32 *to) {
    const fake_u64 *all = (const fake_u64 *)(size_t)self->operations->meet(
        self, site, FAKE_GATHER, address, 0);
    const unsigned lane = fake_lane(self);
    for (int matrix = 0; matrix < N; matrix++) {
        // Row i of a matrix is where lane 8 * matrix + i points to.
        auto element = [&](unsigned row, unsigned column) {
            fake_u16 value;
            __builtin_memcpy(&value, self->shared + all[matrix * 8 + row] + column * 2, 2);
            return (fake_u32)value;
        };
        const unsigned x = lane / 4, y = lane % 4 * 2;
        to[matrix] = transposed ? element(y, x) | element(y + 1, x) << 16
                                : element(x, y) | element(x, y + 1) << 16;
    }
    self->operations->meet(self, site, FAKE_SYNC, 0, 0);
}
#define FAKE_LDMATRIX(suffix, transposed)                                                     \
    template <class R> inline void fake_ptx_ldmatrix_sync_aligned_m8n8_x1##suffix(            \
        fake_thread *self, unsigned site, R &r0, fake_u32 address) {                          \
        fake_load_rows<1>(self, site, address, transposed, (fake_u32 *)&r0);                  \
    }                                                                                         \
    template <class R> inline void fake_ptx_ldmatrix_sync_aligned_m8n8_x2##suffix(            \
        fake_thread *self, unsigned site, R &r0, R &r1, fake_u32 address) {                   \
        fake_u32 r[2];                                                                        \
        fake_load_rows<2>(self, site, address, transposed, r);                                \
        r0 = r[0], r1 = r[1];                                                                 \
    }                                                                                         \
    template <class R> inline void fake_ptx_ldmatrix_sync_aligned_m8n8_x4##suffix(            \
        fake_thread *self, unsigned site, R &r0, R &r1, R &r2, R &r3, fake_u32 address) {     \
        fake_u32 r[4];                                                                        \
        fake_load_rows<4>(self, site, address, transposed, r);                                \
        r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3];                                           \
    }
FAKE_LDMATRIX(_shared__cta_b16, false)
FAKE_LDMATRIX(_trans_shared__cta_b16, true)

// ------------------------------------------- barrier objects, asynchronous copies

namespace std {
template <class T> inline T &&move(T &x) { return static_cast<T &&>(x); }
}

#define wait(token) fake_wait(fake_self, token)
#define wait_parity(phase) fake_wait(fake_self, phase)
#define arrive_and_wait() fake_arrive_and_wait(fake_self)

namespace cooperative_groups {
struct fake_group {};
inline fake_group this_thread_block() { return {}; }
}

// Copies are done when their call returns: a barrier counts arrivals, and bytes where they are announced.
namespace cuda {
enum thread_scope { thread_scope_thread, thread_scope_block };

template <thread_scope> struct alignas(8) barrier {
    typedef fake_u32 arrival_token;
    fake_u32 expected : 15, pending : 15, : 1, phase : 1;
    int bytes;

    void fake_complete() {
        if (pending || bytes) return;
        phase = !phase;
        pending = expected;
    }
    arrival_token arrive(fake_u32 count = 1) {
        arrival_token token = phase;
        pending -= count;
        fake_complete();
        return token;
    }
    void fake_wait(fake_thread *self, fake_u32 old) {
        self->operations->wait_phase(self, reinterpret_cast<const unsigned *>(this), old & 1);
    }
    void fake_arrive_and_wait(fake_thread *self) { fake_wait(self, arrive()); }
};
template <thread_scope S> inline void init(barrier<S> *b, fake_u32 count) {
    b->expected = b->pending = count;
    b->phase = 0;
    b->bytes = 0;
}
// The instrumentation does not see what `memcpy` does.
inline void fake_copy(void *to, const void *from, size_t bytes) {
    __tsan_read_range((void *)from, bytes);
    __tsan_write_range(to, bytes);
    __builtin_memcpy(to, from, bytes);
}
template <class B> inline void memcpy_async(void *to, const void *from, size_t bytes, B &) {
    fake_copy(to, from, bytes);
}
template <class B>
inline void memcpy_async(cooperative_groups::fake_group, void *to, const void *from, size_t bytes, B &) {
    fake_copy(to, from, bytes);
}
namespace device {
template <class B> inline void memcpy_async_tx(void *to, const void *from, size_t bytes, B &b) {
    fake_copy(to, from, bytes);
    b.bytes -= (int)bytes;
    b.fake_complete();
}
template <class B> inline void barrier_expect_tx(B &b, fake_u32 bytes) { b.bytes += (int)bytes; }
template <class B> inline fake_u32 barrier_arrive_tx(B &b, fake_u32 count, fake_u32 bytes) {
    b.bytes += (int)bytes;
    return b.arrive(count);
}
template <class B> inline B *barrier_native_handle(B &b) { return &b; }
namespace experimental {
inline void fence_proxy_async_shared_cta() {}
}
}
}

// `cp.async` to shared memory: `bytes` of the source, then zeros up to `size`.
template <class P>
inline void fake_copy_async(fake_thread *self, fake_u32 to, const P *from, size_t bytes, int size) {
    char *at = self->shared + to;
    for (int i = 0; i < size; i++) at[i] = (size_t)i < bytes ? reinterpret_cast<const char *>(from)[i] : 0;
}
#define fake_ptx_cp_async_ca_shared__cta_global(...) fake_copy_async(fake_self, __VA_ARGS__)
#define fake_ptx_cp_async_cg_shared__cta_global(...) fake_copy_async(fake_self, __VA_ARGS__)
// The copies before it are done.
#define fake_ptx_cp_async_mbarrier_arrive_shared__cta_b64(handle, ...) ((void)(handle))

// -------------------------------------------------------------- the entry

template <size_t... I> struct fake_indices {};
template <class... A> struct fake_signature {
    static constexpr unsigned count = sizeof...(A);
    static constexpr unsigned bytes[sizeof...(A) + 1] = {sizeof(A)..., 0};
    template <size_t... I>
    static inline void call(void (*kernel)(fake_thread *, A...), fake_thread *self,
                            void **arguments, fake_indices<I...>) {
        kernel(self, *reinterpret_cast<A *>(arguments[I])...);
    }
    static inline void call(void (*kernel)(fake_thread *, A...), fake_thread *self,
                            void **arguments) {
        call(kernel, self, arguments, fake_indices<__integer_pack(sizeof...(A))...>());
    }
};
template <class... A> fake_signature<A...> fake_signature_of(void (*)(fake_thread *, A...));

// nvrtc.c puts it at the end of the source.
#define FAKE_KERNEL(function, threads, fibers)                                               \
    typedef decltype(fake_signature_of(&function)) fake_entry;                               \
    static void fake_run_thread(fake_thread *self, void **arguments) {                       \
        fake_entry::call(&function, self, arguments);                                        \
    }                                                                                        \
    static void fake_run_block(fake_thread *self, void **arguments) {                        \
        fake_uint3 &at = self->thread;                                                       \
        const fake_uint3 size = self->block_size;                                            \
        for (at.z = 0; at.z < size.z; at.z++)                                                \
            for (at.y = 0; at.y < size.y; at.y++)                                            \
                for (at.x = 0; at.x < size.x; at.x++)                                        \
                    fake_entry::call(&function, self, arguments);                            \
    }                                                                                        \
    extern "C" __attribute__((visibility("default"))) const fake_kernel_info fake_kernel = {  \
        FAKE_INTERFACE, #function, threads, fibers, fake_entry::count, fake_entry::bytes,     \
        fake_run_thread, fake_run_block, &fake_watched};
