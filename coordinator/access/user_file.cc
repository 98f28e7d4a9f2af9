#include "coordinator/access/user_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "common/base/ids.h"
#include "common/job_spec/yaml_reader.h"
#include "common/job_spec/yaml_text.h"

namespace muster {
namespace {

constexpr int kMaxKeys = 65536;
constexpr std::size_t kMaxGrants = 10'000;
constexpr char kNameRule[] = "a name has 1 to 63 letters, digits, '-', '_' and '.'";

const TextChoices& RoleChoices() {
  static const TextChoices choices{{"viewer", "submitter", "operator", "admin"}, {}};
  return choices;
}

UserRole RoleNamed(const std::string& word) {
  for (int i = 1; i < kUserRoleCount; ++i)
    if (Name(static_cast<UserRole>(i)) == word) return static_cast<UserRole>(i);
  return UserRole::kNone;
}

// What nodes ask their account databases for; muster-launcher checks it again.
constexpr char kAccountRule[] =
    "an account has up to 63 letters, digits, '.', '_', '-' and '@', and no '-' or '.' first";
bool IsAccount(const std::string& name) {
  constexpr char kAllowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@";
  return !name.empty() && name.size() <= 63 && name.front() != '-' && name.front() != '.' &&
         name.find_first_not_of(kAllowed) == name.npos;
}

constexpr char kShortLine[] = "expected 1 to 255 characters on one line";
bool IsShortLine(const std::string& text) {
  return !text.empty() && text.size() <= 255 &&
         std::ranges::none_of(text, [](unsigned char c) { return c < ' ' || c == 0x7f; });
}

bool IsIssuerUrl(const std::string& url) {
  constexpr std::string_view kScheme = "https://";
  return IsShortLine(url) && url.starts_with(kScheme) && url.size() > kScheme.size() &&
         url[kScheme.size()] != '/' && url.find_first_of(" ?#@\\") == url.npos;
}

void Raise(UserRole& role, UserRole to) { role = std::max(role, to); }

class FileReader {
 public:
  FileReader(SpecErrors& errors, UserDirectory& out) : errors_(errors), out_(out) {}

  void Read(const YAML::Node& root) {
    MapReader file(&errors_, root, "");
    if (!errors_.ok()) return;
    file.Require("users", "name each user, such as ada: {}");
    ReadIssuers(file);
    ReadUsers(file);
    if (errors_.ok()) ReadGroups(file);
    if (errors_.ok()) ReadGrants(file);
    file.Finish();
  }

 private:
  void ReadUsers(MapReader& file) {
    auto map = file.Map("users");
    if (!map) return;
    const std::vector<std::string> names = map->Names();
    if (names.size() > std::size_t{kMaxUsers})
      return file.Error("users", "there may be " + std::to_string(kMaxUsers) + " users");
    for (const std::string& name : names) {
      if (!FollowsNameRule(name)) return map->Error(name, kNameRule);
      UserSpec& user = out_.users[name];
      if (map->Node(name)->IsNull()) continue;  // "ada:" alone
      auto keys = map->Map(name);
      if (!keys) return;
      keys->Boolean("disabled", &user.disabled);
      keys->Text("account", &user.account);
      if (keys->Has("account") && !IsAccount(user.account)) keys->Error("account", kAccountRule);
      ReadIdentity(*keys, name, user.identity);
      keys->Finish();
      if (!errors_.ok()) return;
    }
  }

  void ReadIssuers(MapReader& file) {
    const auto list = file.Node("issuers");
    if (!list) return;
    if (!list->IsSequence() || list->size() > kMaxIssuers)
      return file.Error("issuers", "expected a list of up to " + std::to_string(kMaxIssuers) +
                                       ", such as [{url: https://HOST, client_id: muster}]");
    for (std::size_t i = 0; i < list->size() && errors_.ok(); ++i) {
      MapReader keys = file.MapWithin("issuers", (*list)[i], i);
      if (!errors_.ok()) return;
      IssuerSpec issuer;
      keys.Text("url", &issuer.url);
      keys.Text("client_id", &issuer.client_id);
      keys.Require("url", "https://HOST/PATH, as the issuer calls itself");
      keys.Require("client_id", "the name by which the issuer knows this cluster");
      if (keys.Has("url") && !IsIssuerUrl(issuer.url))
        keys.Error("url", "expected https://HOST/PATH, as the issuer calls itself");
      if (out_.FindIssuer(issuer.url) != nullptr) keys.Error("url", "is there twice");
      if (keys.Has("client_id") && !IsShortLine(issuer.client_id))
        keys.Error("client_id", kShortLine);
      keys.Finish();
      out_.issuers.push_back(std::move(issuer));
    }
  }

  void ReadIdentity(MapReader& user, const std::string& name, UserIdentity& identity) {
    auto keys = user.Map("identity");
    if (!keys) return;
    keys->Text("issuer", &identity.issuer);
    keys->AnyText("subject", &identity.subject);
    keys->Require("issuer", "the url of one of the issuers");
    keys->Require("subject", "what the issuer calls the user in ID tokens (sub)");
    keys->Finish();
    if (!errors_.ok()) return;
    if (out_.FindIssuer(identity.issuer) == nullptr)
      return keys->Error("issuer", "'" + identity.issuer + "' is not among the issuers");
    if (!IsShortLine(identity.subject)) return keys->Error("subject", kShortLine);
    const auto [taken, fresh] = out_.identities.emplace(identity, name);
    if (!fresh) keys->Error("subject", "is also the identity of '" + taken->second + "'");
  }

  void ReadGroups(MapReader& file) {
    auto map = file.Map("groups");
    if (!map) return;
    for (const std::string& name : map->Names()) {
      if (!FollowsNameRule(name)) return map->Error(name, kNameRule);
      std::vector<std::string>& members = groups_[name];
      map->TextList(name, &members);
      for (const std::string& member : members)
        if (!out_.users.contains(member))
          return map->Error(name, "'" + member + "' is not among the users");
    }
  }

  void ReadGrants(MapReader& file) {
    const auto list = file.Node("roles");
    if (!list) return;
    if (!list->IsSequence())
      return file.Error("roles", "expected a list such as [{role: viewer, users: [ada]}]");
    if (list->size() > kMaxGrants)
      return file.Error("roles", "there may be " + std::to_string(kMaxGrants) + " entries");
    for (std::size_t i = 0; i < list->size() && errors_.ok(); ++i) {
      MapReader grant = file.MapWithin("roles", (*list)[i], i);
      if (errors_.ok()) ReadGrant(grant);
    }
  }

  void ReadGrant(MapReader& grant) {
    std::string word;
    std::vector<std::string> queues;
    std::vector<std::string> users;
    std::vector<std::string> groups;
    grant.Choice("role", RoleChoices(), &word);
    grant.Require("role", "viewer, submitter, operator or admin");
    grant.TextList("queues", &queues);
    grant.TextList("users", &users);
    grant.TextList("groups", &groups);
    if (grant.Has("queues") && queues.empty())
      grant.Error("queues", "is empty; leave it out for a role in the whole cluster");
    for (const std::string& name : queues)
      if (!FollowsNameRule(name)) grant.Error("queues", kNameRule);
    std::set<std::string> who;
    for (const std::string& user : users) {
      if (!out_.users.contains(user))
        return grant.Error("users", "'" + user + "' is not among the users");
      who.insert(user);
    }
    for (const std::string& group : groups) {
      const auto members = groups_.find(group);
      if (members == groups_.end())
        return grant.Error("groups", "'" + group + "' is not among the groups");
      who.insert(members->second.begin(), members->second.end());
    }
    if (users.empty() && groups.empty())
      grant.Error("users", "the role is nobody's; name users or groups");
    grant.Finish();
    for (const std::string& user : who) Grant(out_.users[user], RoleNamed(word), queues);
  }

  static void Grant(UserSpec& user, UserRole role, const std::vector<std::string>& queues) {
    if (queues.empty()) Raise(user.cluster, role);
    for (const std::string& queue : queues) Raise(user.queues[queue], role);
  }

  SpecErrors& errors_;
  UserDirectory& out_;
  std::map<std::string, std::vector<std::string>> groups_;
};

}  // namespace

std::string_view Name(UserRole role) {
  constexpr std::string_view kNames[kUserRoleCount] = {"none", "viewer", "submitter", "operator",
                                                       "admin"};
  return kNames[static_cast<int>(role)];
}

const UserSpec* UserDirectory::Find(std::string_view user) const {
  const auto found = users.find(user);
  return found == users.end() ? nullptr : &found->second;
}

const IssuerSpec* UserDirectory::FindIssuer(std::string_view url) const {
  const auto found = std::ranges::find(issuers, url, &IssuerSpec::url);
  return found == issuers.end() ? nullptr : &*found;
}

const std::string* UserDirectory::FindByIdentity(const std::string& issuer,
                                                 const std::string& subject) const {
  const auto found = identities.find({issuer, subject});
  return found == identities.end() ? nullptr : &found->second;
}

Result<UserDirectory> ParseUserFile(std::string_view yaml, const std::string& name) {
  try {
    MUSTER_ASSIGN_OR_RETURN(const YAML::Node document,
                            LoadYaml(yaml, name, {"user file", kMaxKeys}));
    if (!document.IsMap())
      return InvalidArgument(name + ":1: expected one map of keys such as users: {ada: {}}");
    SpecErrors errors(name);
    UserDirectory directory;
    FileReader(errors, directory).Read(document);
    MUSTER_RETURN_IF_ERROR(errors.status());
    return directory;
  } catch (const YAML::Exception& error) {
    const int line = error.mark.is_null() ? 1 : error.mark.line + 1;
    return InvalidArgument(name + ":" + std::to_string(line) + ": is no valid YAML: " + error.msg);
  }
}

Result<UserDirectory> ParseStoredUsers(std::uint64_t version, const std::string& yaml) {
  if (version == 0) return UserDirectory{};
  auto directory = ParseUserFile(yaml, "users");
  if (!directory.ok())
    return FailedPrecondition("version " + std::to_string(version) +
                              " of the users, which is in force, is not accepted by this version "
                              "of Muster (" +
                              directory.status().message() +
                              "); start the version of Muster that applied it, and apply a file "
                              "there that this one accepts");
  directory->version = version;
  return directory;
}

Status CheckQueues(const UserDirectory& users, const QueueTree& tree) {
  for (const auto& [name, user] : users.users)
    for (const auto& [queue, role] : user.queues)
      if (tree.Find(queue) < 0)
        return InvalidArgument("roles: " + UnknownQueue(tree, queue) +
                               "\n  next: muster queues show");
  return OkStatus();
}

std::string RolesText(const UserSpec& user) {
  std::string text;
  const auto add = [&text](UserRole role, const std::string& where) {
    text += (text.empty() ? "" : ", ") + std::string(Name(role)) + " in " + where;
  };
  if (user.cluster != UserRole::kNone) add(user.cluster, "the whole cluster");
  for (const auto& [queue, role] : user.queues) add(role, queue);
  if (text.empty()) text = "no role";
  return user.disabled ? text + ", disabled" : text;
}

namespace {

std::string IdentityText(const UserSpec& user) {
  return user.identity.issuer.empty()
             ? "logs in nowhere"
             : "logs in as " + user.identity.subject + " at " + user.identity.issuer;
}

void AddIssuerChanges(const UserDirectory& before, const UserDirectory& after,
                      std::vector<std::string>& changes) {
  for (const IssuerSpec& issuer : before.issuers)
    if (after.FindIssuer(issuer.url) == nullptr)
      changes.push_back("issuer " + issuer.url + ": removed");
  for (const IssuerSpec& issuer : after.issuers) {
    const IssuerSpec* old = before.FindIssuer(issuer.url);
    if (old == nullptr || *old != issuer)
      changes.push_back("issuer " + issuer.url + ": " + (old == nullptr ? "new, " : "") +
                        "client " + issuer.client_id);
  }
}

}  // namespace

std::vector<std::string> UserChanges(const UserDirectory& before, const UserDirectory& after) {
  std::vector<std::string> changes;
  AddIssuerChanges(before, after, changes);
  for (const auto& [name, user] : before.users)
    if (!after.users.contains(name)) changes.push_back(name + ": removed");
  for (const auto& [name, user] : after.users) {
    const UserSpec* old = before.Find(name);
    if (old == nullptr)
      changes.push_back(name + ": new, " + RolesText(user));
    else if (RolesText(*old) != RolesText(user))
      changes.push_back(name + ": " + RolesText(*old) + " -> " + RolesText(user));
    const UserIdentity known = old == nullptr ? UserIdentity() : old->identity;
    if (known != user.identity) changes.push_back(name + ": " + IdentityText(user));
    if ((old == nullptr ? "" : old->account) != user.account)
      changes.push_back(name + ": " +
                        (user.account.empty() ? "has no account on nodes"
                                              : "runs as " + user.account + " on nodes"));
  }
  return changes;
}

}  // namespace muster
