// Conversions between element types on a stream, as collectives need them (CudaApi::Convert).
#pragma once

#include "trainer/core/cuda_api.h"

namespace muster::cuda {

// Returns what the launch returns; errors of the run show later. Any thread.
CudaResult ConvertOnStream(const ConvertRows& rows, CudaStream stream);

}  // namespace muster::cuda
