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
#include <mma.h>

struct info_st {
    uint32_t static_meta[2];
};
extern "C" __global__ void __launch_bounds__(64)  wmma_kernel(__half const* const __restrict__ buf_0, __half const* const __restrict__ buf_1, float * const __restrict__ buf_2, __half * const __restrict__ buf_3) {
uint32_t const v_0 = threadIdx.y;
uint32_t const v_1 = 16;
nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, nvcuda::wmma::row_major> v_2_store; nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, 16, __half, nvcuda::wmma::row_major>* v_2 = &v_2_store;nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, nvcuda::wmma::col_major> v_3_store; nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, 16, __half, nvcuda::wmma::col_major>* v_3 = &v_3_store;nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> v_4_store; nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float>* v_4 = &v_4_store;nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, __half> v_5_store; nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, __half>* v_5 = &v_5_store;
float const v_6 = 0.0;
nvcuda::wmma::fill_fragment(*v_4, v_6);
uint32_t const v_7 = 256;
uint32_t const v_8 = v_0 * v_7;
for(uint32_t i = 0; i < 2; i += 1) {
uint32_t const v_9 = i * v_7;
__half const* const v_10 = &buf_0[v_9];
nvcuda::wmma::load_matrix_sync(*v_2, reinterpret_cast<__half const*>(v_10), v_1);
__half const* const v_11 = &buf_1[v_9];
nvcuda::wmma::load_matrix_sync(*v_3, reinterpret_cast<__half const*>(v_11), v_1);
nvcuda::wmma::mma_sync(*v_4, *v_2, *v_3, *v_4);
}
for(int t=0; t<v_4->num_elements; t++) { v_5->x[t] = __half(v_4->x[t]); }
float * const v_12 = &buf_2[v_8];
nvcuda::wmma::store_matrix_sync(reinterpret_cast<float *>(v_12), *v_4, v_1, nvcuda::wmma::mem_row_major);
__half * const v_13 = &buf_3[v_8];
nvcuda::wmma::store_matrix_sync(reinterpret_cast<__half *>(v_13), *v_5, v_1, nvcuda::wmma::mem_col_major);
return;
}
