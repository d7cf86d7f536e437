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
struct alignas(16) float_4 { float i_0; float i_1; float i_2; float i_3; };

struct info_st {
    float scalars_f32[2];
uint32_t static_meta[4];
};
extern "C" __global__ void __launch_bounds__(64)  scale_kernel(float_4 const* const __restrict__ buf_0, float_4 * const __restrict__ buf_1, uint32_t const* const __restrict__ dynamic_meta, __grid_constant__ info_st const info) {
uint32_t const v_0 = threadIdx.x;
uint32_t const v_1 = blockIdx.x;
uint32_t const v_2 = 64;
uint32_t const v_3 = v_1 * v_2;
uint32_t const v_4 = v_3 + v_0;
uint32_t const v_5 = info.static_meta[0];
bool const v_6 = v_4 < v_5;
if(v_6) {
float_4 const* const v_7 = &buf_0[v_4];
float_4 const v_8 = *v_7;
float const v_9 = info.scalars_f32[0];
uint32_t const v_10 = dynamic_meta[1];
float const v_11 = float(v_10);
float const v_12 = v_8.i_0;
float const v_13 = v_8.i_1;
float const v_14 = v_8.i_2;
float const v_15 = v_8.i_3;
float const v_16 = fma(v_12, v_9, v_11);
float const v_17 = max(v_13, v_9);
float const v_18 = exp(v_14);
float const v_19 = [&] {
#if __CUDA_ARCH__ >= 800
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(v_15), "f"(v_9));
    return result;
#else
    return isnan(v_15) ? v_15 : (isnan(v_9) ? v_9 : fmaxf(v_15, v_9));
#endif
}();
float_4 const v_20 = float_4{v_16, v_17, v_18, v_19};
float_4 * const v_21 = &buf_1[v_4];
*v_21 = v_20;
}
return;
}
