// audit: the cluster's audit trail: who has asked for what, and what came of it.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <limits>
#include <memory>
#include <optional>

#include "cli/base/exit_code.h"
#include "cli/commands/verb.h"
#include "common/audit/audit_chain.h"
#include "common/base/wall_time.h"

namespace muster::verbs {
namespace {

constexpr char kAuditExamples[] =
    "Examples:\n"
    "  muster audit tail -n 50\n"
    "  muster audit export --to audit.jsonl\n"
    "  muster audit verify --head 1207:4c1f…   (the head that export printed)";

// All lines behind `after`, in their order, until `take` fails.
Status ForEachLine(CommandContext& context, std::uint64_t after,
                   const std::function<Status(const std::string&)>& take) {
  v1::ListAuditRequest request;
  request.set_after_seq(after);
  for (;;) {
    MUSTER_ASSIGN_OR_RETURN(const v1::ListAuditResponse page,
                            ClusterAdmin(context.client).ListAudit(request));
    if (page.lines().empty()) return OkStatus();
    for (const std::string& line : page.lines()) {
      MUSTER_RETURN_IF_ERROR(take(line));
      MUSTER_ASSIGN_OR_RETURN(const AuditHead head, AuditHeadOf(line));
      request.set_after_seq(head.seq);
    }
  }
}

std::string HeadText(const AuditHead& head) { return std::to_string(head.seq) + ":" + head.hash; }

Result<AuditHead> ParseHead(const std::string& text) {
  AuditHead head;
  const std::size_t colon = text.find(':');
  const char* end = text.data() + std::min(colon, text.size());
  const auto parsed = std::from_chars(text.data(), end, head.seq);
  head.hash = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (parsed.ec != std::errc() || parsed.ptr != end || head.seq == 0 || head.hash.size() != 64)
    return InvalidArgument("'" + Printable(text) +
                           "' is no head of an audit trail: expected SEQ:HASH, as 'muster audit "
                           "export' prints it");
  return head;
}

Json EntryJson(const AuditLine& line) {
  const AuditEntry& entry = line.entry;
  return {{"seq", entry.seq},
          {"time", IsoTime(entry.unix_ms)},
          {"actor", entry.actor},
          {"as", entry.as_user},
          {"peer", entry.peer},
          {"request", entry.request},
          {"operation", entry.operation},
          {"object", entry.object},
          {"outcome", entry.outcome},
          {"detail", entry.detail},
          {"hash", line.hash}};
}

std::vector<std::string> EntryRow(const AuditLine& line) {
  const AuditEntry& entry = line.entry;
  const std::string who = entry.actor + (entry.as_user.empty() ? "" : " for " + entry.as_user);
  return {std::to_string(entry.seq),
          LocalTime(entry.unix_ms),
          Printable(who),
          entry.operation,
          Printable(entry.object),
          entry.outcome,
          Printable(entry.detail.substr(0, entry.detail.find('\n')))};
}

}  // namespace

struct AuditTail {
  static constexpr char kName[] = "tail";
  static constexpr char kSummary[] = "Show the newest entries of the audit trail";

  int count = 20;

  void AddFlags(Flags& flags) {
    flags.Add("-n,--count N", count, "Number of entries").Range(1, 1e6);
    flags.SetFooter(kAuditExamples);
  }

  CommandResult Run(CommandContext& context) const {
    v1::ListAuditRequest newest;
    newest.set_after_seq(std::numeric_limits<std::int64_t>::max());
    MUSTER_ASSIGN_OR_RETURN(const v1::ListAuditResponse head,
                            ClusterAdmin(context.client).ListAudit(newest));
    const auto wanted = static_cast<std::uint64_t>(count);
    const std::uint64_t after = head.newest_seq() > wanted ? head.newest_seq() - wanted : 0;
    Json list = Json::array();
    Table table({"SEQ", "TIME", "WHO", "OPERATION", "OBJECT", "OUTCOME", "DETAIL"});
    MUSTER_RETURN_IF_ERROR(ForEachLine(context, after, [&](const std::string& text) -> Status {
      MUSTER_ASSIGN_OR_RETURN(const AuditLine line, ReadAuditLine(text));
      list.push_back(EntryJson(line));
      table.Add(EntryRow(line));
      return OkStatus();
    }));
    Terminal& terminal = context.terminal;
    if (!PrintStructured(terminal.out, context.output, list, "seq"))
      table.Print(terminal.out, terminal.color);
    return kExitSuccess;
  }
};

struct AuditExport {
  static constexpr char kName[] = "export";
  static constexpr char kSummary[] =
      "Write the audit trail to a file, and print its head, which verify takes";

  std::string to;
  std::optional<std::int64_t> after;

  void AddFlags(Flags& flags) {
    flags.Add("--to FILE", to, "File for the lines; must not exist").Required();
    flags.Add("--after SEQ", after, "Leave out the entries up to this one").AtLeast(0);
    flags.SetFooter(kAuditExamples);
  }

  CommandResult Run(CommandContext& context) const {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(to.c_str(), "wx"),
                                                               &std::fclose);
    if (!file)
      return AlreadyExists("cannot create " + to +
                           ": it is there already, or its directory cannot be written; name "
                           "another file");
    AuditVerifier verifier;
    MUSTER_RETURN_IF_ERROR(ForEachLine(context, static_cast<std::uint64_t>(after.value_or(0)),
                                       [&](const std::string& line) -> Status {
                                         MUSTER_RETURN_IF_ERROR(verifier.Add(line));
                                         std::fputs((line + "\n").c_str(), file.get());
                                         return OkStatus();
                                       }));
    if (std::fflush(file.get()) != 0 || std::ferror(file.get()) != 0)
      return ResourceExhausted("cannot write " + to + "; is the disk full?");
    const Json json = {{"file", to},
                       {"first", verifier.first().seq},
                       {"last", verifier.head().seq},
                       {"head", HeadText(verifier.head())}};
    std::ostream& out = context.terminal.out;
    if (PrintStructured(out, context.output, json, "head")) return kExitSuccess;
    if (verifier.head().seq == 0)
      out << "the audit trail has no such entry\n";
    else
      out << "wrote entries " << verifier.first().seq << " to " << verifier.head().seq << " to "
          << to << "\nhead " << HeadText(verifier.head()) << "\n";
    return kExitSuccess;
  }
};

struct AuditVerify {
  static constexpr char kName[] = "verify";
  static constexpr char kSummary[] =
      "Check that no entry was changed, added, moved or removed; exit code 1: one was";

  std::string file;
  std::string head;

  void AddFlags(Flags& flags) {
    flags.Add("FILE", file, "Exported file; - reads standard input [default: the coordinator's]");
    flags.Add(
        "--head SEQ:HASH", head,
        "Head that an earlier export printed; without it, removed newest entries do not show");
    flags.SetFooter(kAuditExamples);
  }

  CommandResult Run(CommandContext& context) const {
    AuditHead kept;
    if (!head.empty()) {
      MUSTER_ASSIGN_OR_RETURN(kept, ParseHead(head));
    }
    AuditVerifier verifier(kept);
    const auto take = [&verifier](const std::string& line) { return verifier.Add(line); };
    if (file.empty()) {
      MUSTER_RETURN_IF_ERROR(ForEachLine(context, 0, take));
    } else if (file == "-") {
      MUSTER_RETURN_IF_ERROR(Lines(std::cin, take));
    } else {
      std::ifstream in(file);
      if (!in) return NotFound("cannot read " + file);
      MUSTER_RETURN_IF_ERROR(Lines(in, take));
    }
    MUSTER_RETURN_IF_ERROR(verifier.End());
    const Json json = {{"first", verifier.first().seq},
                       {"last", verifier.head().seq},
                       {"head", HeadText(verifier.head())}};
    std::ostream& out = context.terminal.out;
    if (PrintStructured(out, context.output, json, "head")) return kExitSuccess;
    if (verifier.head().seq == 0)
      out << "the audit trail has no entry\n";
    else
      out << "entries " << verifier.first().seq << " to " << verifier.head().seq
          << " are as they were written\nhead " << HeadText(verifier.head()) << "\n";
    return kExitSuccess;
  }

 private:
  static Status Lines(std::istream& in, const std::function<Status(const std::string&)>& take) {
    for (std::string line; std::getline(in, line);) MUSTER_RETURN_IF_ERROR(take(line));
    return OkStatus();
  }
};

template void AddVerb<AuditTail>(CommandLine& line);
template void AddVerb<AuditExport>(CommandLine& line);
template void AddVerb<AuditVerify>(CommandLine& line);

}  // namespace muster::verbs
