// EvalMetrics: what an evaluation has found, as a line of <output>/eval.jsonl and for people, and
// what was generated from a prompt, as a line of <output>/samples.jsonl.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/base/ids.h"
#include "trainer/state/checkpoint/checkpoint.h"

namespace muster {

struct EvalMetrics {
  Step step = 0;
  Step max_steps = 0;
  double loss = 0;  // mean over the labels
  double perplexity = 0;
  double accuracy = 0;      // 0 to 1
  std::int64_t tokens = 0;  // labels
  double seconds = 0;
  EvalHistory history;  // this one included
  Generation generation = 0;
  int world_size = 1;
};

// Numbers that are not finite are null.
std::string EvalJson(const EvalMetrics& metrics);
// "eval  50/200  loss   2.1234  perplexity    8.360  accuracy  45.2 %  1.2 s  the best so far".
std::string EvalLine(const EvalMetrics& metrics);

struct GeneratedSample {
  Step step = 0;
  std::string prompt;
  std::string text;
  std::int64_t tokens = 0;
  bool ended = false;  // by the model, not by a bound
  Generation generation = 0;
};
std::string SampleJson(const GeneratedSample& sample);

}  // namespace muster
