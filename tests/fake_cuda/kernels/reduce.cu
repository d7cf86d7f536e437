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
    uint32_t static_meta[2];
};
extern "C" __global__ void __launch_bounds__(256)  reduce_kernel(float const* const __restrict__ buf_0, float * const __restrict__ buf_1, __grid_constant__ info_st const info) {
extern __shared__ __align__(16) char v_0[];array<float, 256>* const v_1 = reinterpret_cast<array<float, 256>*>(&v_0[0]);
uint32_t const v_2 = threadIdx.x;
uint32_t const v_3 = blockIdx.x;
uint32_t const v_4 = info.static_meta[0];
float v_5_store;
float * const v_5 = &v_5_store;
float const v_6 = 0;
*v_5 = v_6;
uint32_t const v_7 = 256;
uint32_t const v_8 = v_3 * v_4;
uint32_t const v_9 = v_8 + v_4;
uint32_t const v_10 = v_8 + v_2;
for(uint32_t i = v_10; i < v_9; i += v_7) {
float const* const v_11 = &buf_0[i];
float const v_12 = *v_11;
float const v_13 = *v_5;
float const v_14 = v_13 + v_12;
*v_5 = v_14;
}
float const v_15 = *v_5;
float * const v_16 = &(*v_1)[v_2];
*v_16 = v_15;
__syncthreads();
uint32_t v_17_store = 128;
uint32_t * const v_17 = &v_17_store;
while([&]{
uint32_t const v_18 = *v_17;
uint32_t const v_19 = 0;
bool const v_20 = v_18 > v_19;
return v_20;
}()) {
uint32_t const v_21 = *v_17;
bool const v_22 = v_2 < v_21;
if(v_22) {
uint32_t const v_23 = v_2 + v_21;
float * const v_24 = &(*v_1)[v_23];
float const v_25 = *v_24;
float * const v_26 = &(*v_1)[v_2];
float const v_27 = *v_26;
float const v_28 = v_27 + v_25;
*v_26 = v_28;
}
__syncthreads();
uint32_t const v_29 = 1;
uint32_t const v_30 = v_21 >> v_29;
*v_17 = v_30;
}
uint32_t const v_31 = 0;
bool const v_32 = v_2 == v_31;
if(v_32) {
float * const v_33 = &(*v_1)[v_31];
float const v_34 = *v_33;
float * const v_35 = &buf_1[v_3];
*v_35 = v_34;
}
return;
}
