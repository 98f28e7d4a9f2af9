// PEFT's form of an adapter: a directory with adapter_config.json and adapter_model.safetensors.
//
// Format: PEFT's developer guide, "PEFT checkpoint format", and its LoraConfig (0.21). Tensors have
// the names of PeftName (adapters.h). Any thread; the reader blocks on the file system.
#pragma once

#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/flat_layout.h"
#include "trainer/core/model_config.h"
#include "trainer/formats/model_directory.h"

namespace muster {

inline constexpr char kAdapterConfig[] = "adapter_config.json";
inline constexpr char kAdapterWeights[] = "adapter_model.safetensors";

// The text of adapter_config.json. `base_model`: name or directory of the model that it adapts.
std::string AdapterConfigText(const LoraSpec& spec, const std::string& base_model);

// The directory of an adapter: `trained`, in their order, in fp32 and under their names in PEFT.
ModelDirectory::Adapter PeftDirectory(const std::vector<UnitTensor>& trained, const LoraSpec& spec,
                                      const std::string& base_model);

// What an adapter_config.json says. kNotFound, kInvalidArgument for a file that is malformed,
// kUnimplemented for an adapter of another kind (DoRA, rank patterns, embeddings, one that was
// taken out of the model's weights as PiSSA's is) and for every key that is set and not known here.
Result<LoraSpec> ReadAdapterConfig(const std::string& dir);

// Whether the adapter in `dir` has the form of `spec`, with which `trained` are trained:
// kInvalidArgument names the first difference.
Status CheckAdapterConfig(const std::string& dir, const LoraSpec& spec,
                          const std::vector<UnitTensor>& trained);

}  // namespace muster
