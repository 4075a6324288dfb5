// row_sum: 70 work items
#pragma OPENCL FP_CONTRACT OFF

static float fma_float(float x, float y, float z) {
#ifdef __FMA__
  return __builtin_fmaf(x, y, z);
#else
  return fma(x, y, z);
#endif
}

kernel void row_sum(
    global float *data0,
    global const float *data1) {
  if (get_global_id(0) >= 70) return;
  int i0 = (int)get_global_id(0);
  int v1 = (int)((uint)i0 * 9u);
  float total0 = 0.0f;
  for (int i1 = 0; i1 < 9; i1++) {
    float v2 = (i1 < 5) ? data1[(int)((uint)v1 + (uint)i1)] : 0.0f;
    total0 = fma_float(v2, v2, total0);
  }
  data0[i0] = total0;
}
