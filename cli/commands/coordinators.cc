// coordinators: those of a cluster, and which one leads.

#include "cli/base/exit_code.h"
#include "cli/base/output.h"
#include "cli/commands/verb.h"

namespace muster::verbs {
namespace {

Json JsonOf(const CoordinatorAnswer& answer) {
  const bool answers = answer.status.ok();
  const char* const role = answer.version.stands_by() ? "stands by" : "leads";
  return {{"address", answer.address},
          {"role", answers ? Json(role) : Json()},
          {"version", TextOrNull(answer.version.version())},
          {"problem", TextOrNull(answer.status.message())}};
}

}  // namespace

struct Coordinators {
  static constexpr char kName[] = "coordinators";
  static constexpr char kSummary[] = "Show which coordinator leads and which ones stand by";

  void AddFlags(Flags&) {}

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<CoordinatorAnswer> answers,
                            context.client.AskCoordinators());
    bool one_leads = false;
    Json list = Json::array();
    Table table({"ADDRESS", "ROLE", "VERSION", "PROBLEM"});
    for (const CoordinatorAnswer& answer : answers) {
      const bool answered = answer.status.ok();
      one_leads |= answered && !answer.version.stands_by();
      list.push_back(JsonOf(answer));
      table.Add({answer.address, OrDash(answered ? list.back()["role"].get<std::string>() : ""),
                 OrDash(answer.version.version()), OrDash(answer.status.message())});
    }
    if (!PrintStructured(context.terminal.out, context.output, list, "address"))
      table.Print(context.terminal.out, context.terminal.color);
    return one_leads ? kExitSuccess : kExitError;
  }
};

template void AddVerb<Coordinators>(CommandLine& line);

}  // namespace muster::verbs
