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
extern "C" __global__ void __launch_bounds__(64)  diverge_kernel(float * const __restrict__ buf_0) {
uint32_t const v_0 = threadIdx.x;
uint32_t const v_1 = 32;
bool const v_2 = v_0 < v_1;
if(v_2) {
__syncthreads();
}
 else {
__syncthreads();
}
return;
}
