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
extern "C" __global__ void __launch_bounds__(8)  cast_kernel(float const* const __restrict__ buf_0, int32_t * const __restrict__ buf_1, uint32_t * const __restrict__ buf_2, int64_t * const __restrict__ buf_3, uint8_t * const __restrict__ buf_4) {
uint32_t const v_0 = threadIdx.x;
float const v_1 = buf_0[v_0];
int32_t const v_2 = int32_t(v_1);
buf_1[v_0] = v_2;
uint32_t const v_3 = uint32_t(v_1);
buf_2[v_0] = v_3;
__half const v_4 = __half(v_1);
int64_t const v_5 = int64_t(v_4);
buf_3[v_0] = v_5;
uint8_t const v_6 = uint8_t(v_0);
buf_4[v_0] = v_6;
return;
}
