typedef unsigned int uint32_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned long long int uint64_t;
typedef signed char int8_t;
typedef signed short int16_t;
typedef signed int int32_t;
typedef signed long long int int64_t;

template <typename T, size_t N>
struct array {
    T data[N];
    __device__ T& operator[](size_t i) { return data[i]; }
    __device__ const T& operator[](size_t i) const { return data[i]; }
};


typedef struct CUtensorMap_st {
alignas(128) unsigned long long int opaque[16];
} CUtensorMap;
#include <cuda_fp16.h>

struct info_st {
    uint32_t static_meta[2];
};
extern "C" __global__ void __launch_bounds__(128)  scatter_kernel(uint32_t const* const __restrict__ buf_0, float * const __restrict__ buf_1, uint32_t * const __restrict__ buf_2, __half * const __restrict__ buf_3, int32_t * const __restrict__ buf_4) {
uint32_t const v_0 = threadIdx.x;
uint32_t const v_1 = buf_0[v_0];
float  * const v_2 = &buf_1[v_1];
float const v_3 = 0.5;
float const v_4 = [&]{
float result;
asm volatile("atom.relaxed.add.f32 %0, [%1], %2;" : "=f"(result) : "l"(v_2), "f"(v_3) );
return result;
}();uint32_t  * const v_5 = &buf_2[v_1];
uint32_t const v_6 = [&]{
uint32_t result;
asm volatile("atom.relaxed.max.u32 %0, [%1], %2;" : "=r"(result) : "l"(v_5), "r"(v_0) : "memory");
return result;
}();__half  * const v_7 = &buf_3[v_1];
__half const v_8 = 1.0;
uint16_t const v_9 = reinterpret_cast<const uint16_t&>(v_8);
uint16_t const v_10 = [&]{
uint16_t result;
asm volatile("atom.relaxed.add.noftz.f16 %0, [%1], %2;" : "=h"(result) : "l"(v_7), "h"(v_9) );
return result;
}();int32_t  * const v_11 = &buf_4[v_1];
int32_t const v_12 = int32_t(v_0);
int32_t const v_13 = atomicMax(v_11, v_12);
uint32_t const v_14 = [&]{
const uint32_t tmp = atomicExch(reinterpret_cast<uint32_t*>(&buf_2[8]), reinterpret_cast<const uint32_t&>(v_0));
return reinterpret_cast<const uint32_t&>(tmp);
}();
return;
}
