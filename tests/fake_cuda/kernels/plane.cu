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
struct alignas(16) uint32_t_4 { uint32_t i_0; uint32_t i_1; uint32_t i_2; uint32_t i_3; };

struct info_st {
    uint32_t static_meta[2];
};
extern "C" __global__ void __launch_bounds__(64)  plane_kernel(float const* const __restrict__ buf_0, float * const __restrict__ buf_1, uint32_t * const __restrict__ buf_2) {
uint32_t const v_0 = threadIdx.x;
float const v_1 = buf_0[v_0];
uint32_t const v_2 = 16;
float const v_3 = __shfl_xor_sync(__activemask(), v_1, v_2);
float const v_4 = v_1 + v_3;
float const v_5 = __shfl_xor_sync(__activemask(), v_4, 8);
float const v_6 = v_4 + v_5;
float const v_7 = __shfl_xor_sync(__activemask(), v_6, 4);
float const v_8 = v_6 + v_7;
float const v_9 = __shfl_xor_sync(__activemask(), v_8, 2);
float const v_10 = v_8 + v_9;
float const v_11 = __shfl_xor_sync(__activemask(), v_10, 1);
float const v_12 = v_10 + v_11;
buf_1[v_0] = v_12;
uint32_t const v_13 = 31;
uint32_t const v_14 = v_0 & v_13;
uint32_t const v_15 = 5;
bool const v_16 = v_14 < v_15;
uint32_t_4 const v_17 = {__ballot_sync(__activemask(), v_16), 0, 0, 0};
uint32_t const v_18 = v_17.i_0;
buf_2[v_0] = v_18;
uint32_t v_19_store = 0;
uint32_t * const v_19 = &v_19_store;
if(v_16) {
uint32_t const v_20 = __activemask();
*v_19 = v_20;
}
 else {
for(uint32_t i = 0; i < v_14; i += 10) {
uint32_t const v_21 = __activemask();
*v_19 = v_21;
}
}
uint32_t const v_22 = *v_19;
uint32_t const v_23 = v_0 + 64;
buf_2[v_23] = v_22;
uint32_t const v_24 = 1;
uint32_t const v_25 = __shfl_up_sync(__activemask(), v_14, v_24);
uint32_t const v_26 = v_0 + 128;
buf_2[v_26] = v_25;
bool const v_27 = __all_sync(__activemask(), v_16);
bool const v_28 = __any_sync(__activemask(), v_16);
__syncwarp();
uint32_t const v_29 = v_0 + 192;
buf_2[v_29] = uint32_t(v_27) * 2 + uint32_t(v_28);
return;
}
