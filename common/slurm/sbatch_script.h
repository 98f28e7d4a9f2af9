// The batch script of a job: what `muster slurm submit` gives to sbatch.
//
// Made to be read: plain bash without any program of ours but muster-worker, one srun, which starts
// a supervisor on every node, and an end that never reports an unfinished job to Slurm as done.
// docs/slurm.md explains each line; a hand-written script needs the srun line only.
//
// Pure functions; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.h"
#include "common/job_spec/job_spec.h"
#include "common/slurm/sbatch_options.h"

namespace muster::slurm {

// Where a job keeps what its Slurm jobs share: below the output directory, or, for a job with a
// command, whose output has no fixed place, below its workdir.
struct JobPlaces {
  std::string submission;    // directory of one submission: job.yaml, run.sbatch, the batch log
  std::string state_prefix;  // with the Slurm job's number behind it: what the supervisors share
};
JobPlaces PlacesOf(const JobSpec& spec, const std::string& key);
// What the names of such directories begin with, whatever runs the job.
std::string SharedPrefix(const JobSpec& spec);

struct ScriptRequest {
  JobSpec spec;                          // with an absolute workdir
  std::string key;                       // of the submission
  std::string worker = "muster-worker";  // a path, or a name to find in PATH on the nodes
  std::vector<std::string> worker_arguments;
  SbatchOptions options;        // the user's
  std::string apptainer_image;  // empty: no container of Apptainer
  std::vector<std::string> apptainer_options;
  int signal_lead_seconds = 180;  // before the end of the allocation's time; Slurm may be 60 early
  int max_requeues = 100;
};

// The coordinator of an allocation has one job: kInvalidArgument for what places jobs among others,
// which Slurm does, and names its option.
Status CheckScheduling(const JobSpec& spec);

// kInvalidArgument for texts that Slurm cannot take in a script, or that contradict each other.
Result<std::string> RenderScript(const ScriptRequest& request);

// What --comment says of a submission, and read back; nothing for others' comments.
std::string CommentOf(const std::string& key, const JobPlaces& places);
struct SubmissionComment {
  std::string key;
  std::string state_prefix;
};
std::optional<SubmissionComment> ParseComment(std::string_view comment);

// 1 to 64 letters, digits, '-', '_' and '.': it becomes part of file names.
Status CheckKey(const std::string& key);

}  // namespace muster::slurm
