// VocabGrowth: what model.add_tokens and model.pad_vocab_to make of a model: a tokenizer that has
// more tokens, and an embedding and a head with rows for all its ids.
//
// A model never loses rows: one that has more of them than its tokenizer has ids keeps them, and
// new tokens take the first that are free. Rows that the files lack are the mean of those that they
// hold (SafetensorsModel::GrowRows). A pure function of the model's directory and the job, so every
// rank and every start come to the same.
//
// Plain values. Reading blocks on the file system; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "trainer/core/model_config.h"
#include "trainer/formats/model_directory.h"
#include "trainer/formats/safetensors.h"
#include "trainer/text/tokenizer/extend_json.h"
#include "trainer/text/tokenizer/tokenizer.h"

namespace muster {

struct VocabGrowth {
  std::int64_t rows_before = 0;  // of embedding and head, as the model's files have them
  std::int64_t rows = 0;         // as they are trained
  std::vector<ExtendedTokenizer::Id> tokens;  // that the tokenizer had not
  std::string tokenizer_json;                 // empty: as in the model's directory
  std::string tokenizer_config;               // likewise

  bool grows() const { return rows > rows_before; }
  // For people: which tokens have which ids, and how many rows there are.
  std::string Describe() const;
};

// Nothing: the job asks for neither. kInvalidArgument, kUnimplemented and kNotFound name the key or
// the file.
Result<std::optional<VocabGrowth>> PlanVocabGrowth(const ModelSpec& spec,
                                                   const std::string& model_dir,
                                                   const ModelConfig& config);

// The tokenizer of a job: `tokenizer_json` where that has a text, else the model directory's.
Result<Tokenizer> LoadTokenizer(const std::string& model_dir, const std::string& tokenizer_json);

// kInvalidArgument where rows would be new and `lora` leaves them untrained.
Status CheckRowsAreTrained(const VocabGrowth& growth, const ModelConfig& config,
                           const LoraSpec& lora);

// Makes the configuration, config.json's text included, that of `rows` rows, and the weights as
// well. `weights` may be null.
Status GrowModel(std::int64_t rows, ModelConfig* config, SafetensorsModel* weights);

// The files that differ from the model directory's: what an exported model has in their place, or
// an exported adapter, which has no config.json.
std::vector<ModelFile> FilesOfGrownModel(const VocabGrowth& growth, const ModelConfig& grown,
                                         bool adapter);

// The grown model's directory without weights: what a checkpoint of the job is exported with.
Status WriteGrownFiles(const std::string& model_dir, const std::vector<ModelFile>& files,
                       const std::string& target_dir);

}  // namespace muster
