// Which weights a model has: a number that two models that were trained apart do not share.
//
// It is made of every tensor's name and shape and of some of its values, since reading all of them
// takes as long as loading: training changes values everywhere, new tokens bring last rows. Files
// that were edited or damaged in between are not distinguished. In how many files the tensors lie
// and in which type does not count where the values are the same.
//
// Any thread; blocks on the disk, for three short reads per tensor.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/result.h"
#include "trainer/formats/safetensors.h"

namespace muster {

Result<std::uint64_t> FingerprintWeights(const SafetensorsModel& model);

// "xxh3:0123456789abcdef".
std::string FingerprintText(std::uint64_t fingerprint);

}  // namespace muster
