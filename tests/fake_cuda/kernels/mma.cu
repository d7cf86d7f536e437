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
struct alignas(16) uint32_t_4 { uint32_t i_0; uint32_t i_1; uint32_t i_2; uint32_t i_3; };
struct alignas(8) uint32_t_2 { uint32_t i_0; uint32_t i_1; };
struct alignas(16) float_4 { float i_0; float i_1; float i_2; float i_3; };

struct info_st {
    uint32_t static_meta[2];
};
extern "C" __global__ void __launch_bounds__(32)  mma_kernel(__half const* const __restrict__ buf_0, __half const* const __restrict__ buf_1, float * const __restrict__ buf_2) {
extern __shared__ __align__(16) char v_0[];array<__half, 256>* const v_1 = reinterpret_cast<array<__half, 256>*>(&v_0[0]);
array<__half, 128>* const v_2 = reinterpret_cast<array<__half, 128>*>(&v_0[512]);
uint32_t const v_3 = threadIdx.x;
for(uint32_t i = v_3; i < 256; i += 32) {
(*v_1)[i] = buf_0[i];
}
for(uint32_t i = v_3; i < 128; i += 32) {
(*v_2)[i] = buf_1[i];
}
__syncthreads();
uint32_t const v_4 = v_3 & 15;
uint32_t const v_5 = v_3 >> 4;
uint32_t const v_6 = v_4 * 16 + v_5 * 8;
__half * const v_7 = &(*v_1)[v_6];
uint32_t const v_8 = __cvta_generic_to_shared(v_7);
uint32_t_4 const v_9 = [&]{
uint32_t_4 result;
asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];" : "=r"(result.i_0), "=r"(result.i_1), "=r"(result.i_2), "=r"(result.i_3) : "r"(v_8) : "memory");
return result;
}();uint32_t const v_10 = v_4 * 8;
__half * const v_11 = &(*v_2)[v_10];
uint32_t const v_12 = __cvta_generic_to_shared(v_11);
uint32_t_2 const v_13 = [&]{
uint32_t_2 result;
asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared::cta.b16 {%0, %1}, [%2];" : "=r"(result.i_0), "=r"(result.i_1) : "r"(v_12) : "memory");
return result;
}();float_4 const v_14 = {};
float_4 const v_15 = [&]{
float_4 result;
asm ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};" : "=f"(result.i_0), "=f"(result.i_1), "=f"(result.i_2), "=f"(result.i_3) : "r"(v_9.i_0), "r"(v_9.i_1), "r"(v_9.i_2), "r"(v_9.i_3), "r"(v_13.i_0), "r"(v_13.i_1), "f"(v_14.i_0), "f"(v_14.i_1), "f"(v_14.i_2), "f"(v_14.i_3) );
return result;
}();uint32_t const v_16 = v_3 >> 2;
uint32_t const v_17 = (v_3 & 3) * 2;
buf_2[v_16 * 8 + v_17] = v_15.i_0;
buf_2[v_16 * 8 + v_17 + 1] = v_15.i_1;
buf_2[(v_16 + 8) * 8 + v_17] = v_15.i_2;
buf_2[(v_16 + 8) * 8 + v_17 + 1] = v_15.i_3;
return;
}
