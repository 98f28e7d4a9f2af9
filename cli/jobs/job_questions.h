// The questions of `muster config`, and the job file made from the answers.
//
// Each question has a help text, a default and a check. The file has comments, so that it can be
// read and changed later. Pure except for the streams that are passed in; one thread.
#pragma once

#include <iosfwd>
#include <set>
#include <string>
#include <vector>

#include "common/base/result.h"

namespace muster {

struct JobAnswers {
  std::string name = "my-job";
  std::string model = "model";
  std::string data = "train.jsonl";
  std::string method = "full";  // full | lora | qlora
  std::string device = "cpu";   // cpu, or a GPU's name for the plan ("H100-80")
  int nodes = 1;
  int ranks_per_node = 1;
  int max_seq_len = 2048;
  int batch = 8;  // rows of a step, at least; a rank takes one at a time
  double epochs = 3;
  std::string output = "out";

  bool on_gpus() const { return device != "cpu"; }
};

struct Question {
  std::string key;          // also the flag's name: --ranks-per-node
  std::string placeholder;  // of its value
  std::string text;         // "Ranks per node"
  std::string help;
};
const std::vector<Question>& Questions();

// An answer as text, and parsed from text. kInvalidArgument names what is expected.
std::string AnswerOf(const JobAnswers& answers, const std::string& key);
Status SetAnswer(const std::string& key, const std::string& text, JobAnswers* answers);

// Asks all questions except those in `given`, and repeats one whose answer is invalid. '?' shows
// the help; an empty line takes the default in brackets. kCancelled when `in` ends.
Status AskQuestions(std::istream& in, std::ostream& out, const std::set<std::string>& given,
                    JobAnswers* answers);

// A job file. ParseJobSpec accepts it unless an answer asks for what this version lacks.
std::string JobText(const JobAnswers& answers);

// The commands to type next.
std::vector<std::string> NextCommands(const JobAnswers& answers, const std::string& file);

}  // namespace muster
