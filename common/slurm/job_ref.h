// JobRef: how Slurm's commands name a job: "42", or "40_1" for one task of an array.
//
// One task of each array has the array's own number as its job id, and Slurm's commands take that
// number for the whole array. So a task is always named by its array and its place in it.
//
// A value; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::slurm {

struct ArrayTask {
  std::uint64_t job_id = 0;  // of the array
  std::uint64_t task_id = 0;

  friend bool operator==(const ArrayTask&, const ArrayTask&) = default;
};

class JobRef {
 public:
  // Not explicit: a number is how most jobs are named.
  JobRef(std::uint64_t id) : text_(std::to_string(id)) {}
  JobRef(const ArrayTask& task)
      : text_(std::to_string(task.job_id) + "_" + std::to_string(task.task_id)), is_task_(true) {}

  // Nothing for what is neither of both, such as "40_[2-5]" and names.
  static std::optional<JobRef> Parse(std::string_view text);

  const std::string& text() const { return text_; }
  bool is_task() const { return is_task_; }

  friend bool operator==(const JobRef&, const JobRef&) = default;

 private:
  std::string text_;
  bool is_task_ = false;
};

}  // namespace muster::slurm
