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
#include <cuda/barrier>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>

struct info_st {
    uint32_t static_meta[2];
};
extern "C" __global__ void __launch_bounds__(64)  pipeline_kernel(float const* const __restrict__ buf_0, float * const __restrict__ buf_1) {
extern __shared__ __align__(16) char v_0[];cuda::barrier<cuda::thread_scope_block>* const v_1 = reinterpret_cast<cuda::barrier<cuda::thread_scope_block>*>(&v_0[1024]);
array<float, 256>* const v_2 = reinterpret_cast<array<float, 256>*>(&v_0[0]);
uint32_t const v_3 = threadIdx.x;
uint32_t const v_4 = 0;
bool const v_5 = v_3 == v_4;
if(v_5) {
uint32_t const v_6 = 64;
init(v_1, v_6);
}
__syncthreads();
for(uint32_t i = 0; i < 3; i += 1) {
uint32_t const v_7 = i * 256 + v_3 * 4;
float const* const v_8 = &buf_0[v_7];
float * const v_9 = &(*v_2)[v_3 * 4];
uint32_t const v_10 = __cvta_generic_to_shared(v_9);
uint32_t const v_11 = 12;
asm volatile("cp.async.cg.shared::cta.global [%0], [%1], 16, %2;" :  : "r"(v_10), "l"(v_8), "r"(v_11) : "memory");uint32_t const v_12 = __cvta_generic_to_shared(cuda::device::barrier_native_handle(*v_1));
asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" :  : "r"(v_12) : "memory");cuda::barrier<cuda::thread_scope_block>::arrival_token v_13 = v_1->arrive();
v_1->wait(std::move(v_13));uint32_t const v_14 = 255 - v_3 * 4;
float const v_15 = (*v_2)[v_14 - 1];
float const v_16 = __shfl_xor_sync(__activemask(), v_15, 1);
float const v_17 = (*v_2)[v_14];
float const v_18 = v_16 + v_17;
float * const v_19 = &buf_1[i * 64 + v_3];
*v_19 = v_18;
v_1->arrive_and_wait();}
return;
}
