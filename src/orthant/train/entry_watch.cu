// variant ELEMENT=2: at most 40 registers
// all ELEMENT=2
//
// Notes for each row of a table whether one of its elements is NaN or infinite, where the step's numbers (loss, norm,
// whether a smaller loss scale may mend it) say that the step was bad. After a good one it does nothing.
struct Row {
  const u8* first;
  i64 elements;
  i64 exponent;  // bits of an element that are all set where it is not finite; 16-bit elements where it is below 2^16
};

extern "C" __global__ void __launch_bounds__(1024)
    note_not_finite(u8* flags, const Row* rows, int num_rows, const double* numbers) {
  if ((isfinite(numbers[0]) && isfinite(numbers[1])) || numbers[2] > 0) return;
  for (int r = blockIdx.x; r < num_rows; r += gridDim.x) {
    const Row row = rows[r];
    const u32 exponent = (u32)row.exponent;
    int any = 0;
    for (i64 i = threadIdx.x; i < row.elements; i += blockDim.x) {
      const u32 bits = exponent >> 16 ? ((const u32*)row.first)[i] : ((const u16*)row.first)[i];
      any |= (bits & exponent) == exponent;
    }
    any = __syncthreads_or(any);
    if (threadIdx.x == 0) flags[r] = any != 0;
  }
}
