// How a verb joins the command line. A verb is one file of this folder: a struct with its name, its
// summary, its flags as members, and what it does; cli/app.cc lists it.
//
//   struct Resume {
//     static constexpr char kName[] = "resume";
//     static constexpr char kSummary[] = "Resume a suspended job";
//     std::string job;
//     void AddFlags(Flags& flags) { flags.Add("JOB", job, kJobHelp).Required(); }
//     CommandResult Run(CommandContext& context) const;
//   };
//   template void AddVerb<Resume>(CommandLine& line);
//
// One thread.
#pragma once

#include <memory>

#include "cli/commands/command_line.h"

namespace muster::verbs {

// Each verb's file instantiates this for its own struct, which no other file needs to see.
template <typename Verb>
void AddVerb(CommandLine& line) {
  auto verb = std::make_shared<Verb>();
  Flags flags = line.Add(Verb::kName, Verb::kSummary,
                         [verb](CommandContext& context) { return verb->Run(context); });
  verb->AddFlags(flags);
}

}  // namespace muster::verbs
