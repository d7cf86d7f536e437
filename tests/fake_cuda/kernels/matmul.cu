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

struct info_st {
    uint32_t static_meta[4];
};
extern "C" __global__ void __launch_bounds__(256)  matmul_kernel(float const* const __restrict__ buf_0, float const* const __restrict__ buf_1, float * const __restrict__ buf_2, __grid_constant__ info_st const info) {
extern __shared__ __align__(16) char v_0[];array<float, 256>* const v_1 = reinterpret_cast<array<float, 256>*>(&v_0[0]);
array<float, 256>* const v_2 = reinterpret_cast<array<float, 256>*>(&v_0[1024]);
uint32_t const v_3 = threadIdx.x;
uint32_t const v_4 = threadIdx.y;
uint32_t const v_5 = blockIdx.x * 16;
uint32_t const v_6 = blockIdx.y * 16;
uint32_t const v_7 = info.static_meta[0];
array<float, 1> v_8_store;
array<float, 1> * const v_8 = &v_8_store;
uint32_t const v_9 = 0;
float * const v_10 = &(*v_8)[v_9];
*v_10 = 0;
uint32_t const v_11 = v_4 * 16;
uint32_t const v_12 = v_11 + v_3;
for(uint32_t i = v_9; i < v_7; i += 16) {
uint32_t const v_13 = (v_6 + v_4) * v_7 + i + v_3;
float const v_14 = buf_0[v_13];
float * const v_15 = &(*v_1)[v_12];
*v_15 = v_14;
uint32_t const v_16 = (i + v_4) * v_7 + v_5 + v_3;
float const v_17 = buf_1[v_16];
float * const v_18 = &(*v_2)[v_12];
*v_18 = v_17;
__syncthreads();
for(uint32_t j = v_9; j < 16; j += 1) {
float const v_19 = (*v_1)[v_11 + j];
float const v_20 = (*v_2)[j * 16 + v_3];
float const v_21 = *v_10;
float const v_22 = fma(v_19, v_20, v_21);
*v_10 = v_22;
}
__syncthreads();
}
uint32_t const v_23 = (v_6 + v_4) * v_7 + v_5 + v_3;
float const v_24 = *v_10;
buf_2[v_23] = v_24;
return;
}
