// users: who may do what in the cluster, as a file that is checked, applied and shown.

#include <cstdint>
#include <optional>

#include "cli/base/exit_code.h"
#include "cli/client/applied_file.h"
#include "cli/commands/verb.h"
#include "cli/jobs/user_texts.h"

namespace muster::verbs {
namespace {

constexpr char kUserFileHelp[] = "User file; - reads standard input";
constexpr char kUserExamples[] =
    "Examples:\n"
    "  muster users check users.yaml\n"
    "  muster users apply users.yaml\n"
    "  muster users show";

Result<v1::ApplyUsersRequest> RequestToApply(const std::string& path) {
  return RequestWithFile<v1::ApplyUsersRequest>(path, "user file");
}

}  // namespace

struct UsersCheck {
  static constexpr char kName[] = "check";
  static constexpr char kSummary[] = "Check a user file, and show what it would change";

  std::string file;

  void AddFlags(Flags& flags) {
    flags.Add("FILE", file, kUserFileHelp).Required();
    flags.SetFooter(kUserExamples);
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(v1::ApplyUsersRequest request, RequestToApply(file));
    request.set_check_only(true);
    MUSTER_ASSIGN_OR_RETURN(const v1::ApplyUsersResponse response,
                            ClusterAdmin(context.client).ApplyUsers(request));
    PrintFileChanges(context, response, /*applied=*/false);
    return kExitSuccess;
  }
};

struct UsersApply {
  static constexpr char kName[] = "apply";
  static constexpr char kSummary[] = "Apply a user file: it takes effect at once";

  std::string file;
  std::optional<int> version;

  void AddFlags(Flags& flags) {
    flags.Add("FILE", file, kUserFileHelp).Required();
    flags.Add("--version N", version, kAppliedVersionHelp).AtLeast(0);
    flags.SetFooter(kUserExamples);
  }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(v1::ApplyUsersRequest request, RequestToApply(file));
    if (version) {
      request.set_expected_version(static_cast<std::uint64_t>(*version));
    } else {
      MUSTER_ASSIGN_OR_RETURN(const v1::ShowUsersResponse now,
                              ClusterAdmin(context.client).ShowUsers());
      request.set_expected_version(now.version());
    }
    MUSTER_ASSIGN_OR_RETURN(const v1::ApplyUsersResponse response,
                            ClusterAdmin(context.client).ApplyUsers(request));
    PrintFileChanges(context, response, /*applied=*/true);
    return kExitSuccess;
  }
};

struct UsersShow {
  static constexpr char kName[] = "show";
  static constexpr char kSummary[] =
      "Show the users and their roles; -o yaml prints the file that was applied";

  void AddFlags(Flags& flags) { flags.SetFooter(kUserExamples); }

  CommandResult Run(CommandContext& context) const {
    MUSTER_ASSIGN_OR_RETURN(const v1::ShowUsersResponse users,
                            ClusterAdmin(context.client).ShowUsers());
    Terminal& terminal = context.terminal;
    if (context.output == OutputFormat::kYaml) {
      terminal.out << users.yaml();
      return kExitSuccess;
    }
    Json list = Json::array();
    Table table({"USER", "ROLES", "DISABLED"});
    for (const v1::User& user : users.users()) {
      list.push_back({{"name", user.name()},
                      {"disabled", user.disabled()},
                      {"roles", RolesJson(user.roles())}});
      table.Add({user.name(), RolesText(user.roles()), user.disabled() ? "yes" : "no"});
    }
    const bool each =
        context.output == OutputFormat::kJsonl || context.output == OutputFormat::kName;
    const Json json = {{"version", users.version()}, {"users", list}, {"file", users.yaml()}};
    if (PrintStructured(terminal.out, context.output, each ? list : json, "name"))
      return kExitSuccess;
    if (users.version() == 0)
      terminal.err << "this cluster has no users: admins and its token may do everything\n";
    else
      table.Print(terminal.out, terminal.color);
    return kExitSuccess;
  }
};

template void AddVerb<UsersCheck>(CommandLine& line);
template void AddVerb<UsersApply>(CommandLine& line);
template void AddVerb<UsersShow>(CommandLine& line);

}  // namespace muster::verbs
