// What `muster config` asks, and the job file that it makes of the answers.
//
// A table of questions, each with a help, a default and a check; the file is text with comments, so
// that it can be read and changed later. Pure but for the streams that are handed in; one thread.
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
  std::string key;   // also the flag's name: --ranks-per-node
  std::string text;  // "Ranks on each node"
  std::string help;
};
const std::vector<Question>& Questions();

// The answer to a question as text, and taken from one. kInvalidArgument says what is expected.
std::string AnswerOf(const JobAnswers& answers, const std::string& key);
Status SetAnswer(const std::string& key, const std::string& text, JobAnswers* answers);

// Asks all questions but those in `given`, again where an answer is refused; '?' shows the help,
// an empty line takes what stands in brackets. kCancelled where `in` ends.
Status AskQuestions(std::istream& in, std::ostream& out, const std::set<std::string>& given,
                    JobAnswers* answers);

// A job file that ParseJobSpec reads, if this version acts on what was asked for.
std::string JobText(const JobAnswers& answers);

// What to type next: a look at what it takes, and the job.
std::vector<std::string> NextCommands(const JobAnswers& answers, const std::string& file);

}  // namespace muster
