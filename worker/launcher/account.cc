#include "worker/launcher/account.h"

#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace muster::launcher {
namespace {

constexpr std::size_t kMaxEntryBytes = 1 << 20;
constexpr int kMaxGroups = 65536;

#if defined(__x86_64__)
constexpr __u32 kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr __u32 kArchitecture = AUDIT_ARCH_AARCH64;
#endif

bool SetCapabilities(std::uint64_t keep) {
  __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  for (int word = 0; word < 2; ++word)
    sets[word].effective = sets[word].permitted = static_cast<__u32>(keep >> (32 * word));
  return ::syscall(SYS_capset, &head, sets) == 0;
}

bool FindGroups(Account* account) {
  int count = 64;
  std::vector<gid_t> groups(static_cast<std::size_t>(count));
  while (::getgrouplist(account->name.c_str(), account->gid, groups.data(), &count) < 0) {
    if (count > kMaxGroups || count <= static_cast<int>(groups.size())) return false;
    groups.resize(static_cast<std::size_t>(count));
  }
  groups.resize(static_cast<std::size_t>(count));
  std::erase_if(groups, [account](gid_t gid) { return gid < kFirstId || gid == account->gid; });
  account->groups = std::move(groups);
  return true;
}

}  // namespace

Reason FindAccount(const char* name, Account* account, int* error) {
  std::vector<char> buffer(4096);
  passwd entry{};
  passwd* found = nullptr;
  while ((*error = ::getpwnam_r(name, &entry, buffer.data(), buffer.size(), &found)) == ERANGE &&
         buffer.size() < kMaxEntryBytes)
    buffer.resize(4 * buffer.size());
  if (found == nullptr) {
    const bool unknown = *error == 0 || *error == ENOENT || *error == ESRCH || *error == EBADF;
    return unknown ? Reason::kNoAccount : Reason::kFailed;
  }
  *account = {.name = entry.pw_name,
              .home = entry.pw_dir,
              .shell = entry.pw_shell,
              .uid = entry.pw_uid,
              .gid = entry.pw_gid,
              .groups = {}};
  const bool all_ones =
      account->uid == static_cast<uid_t>(-1) || account->gid == static_cast<gid_t>(-1);
  if (account->uid < kFirstId || account->gid < kFirstId || all_ones) return Reason::kSystemAccount;
  if (FindGroups(account)) return Reason::kDone;
  *error = EOVERFLOW;
  return Reason::kFailed;
}

bool LimitCapabilities(std::uint64_t keep) {
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability)
    if ((keep >> capability & 1) == 0 && ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0)
      return false;
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0) return false;
  return keep == 0 || SetCapabilities(keep);
}

bool Become(const Account& account) {
  const uid_t uid = account.uid;
  const gid_t gid = account.gid;
  if (!LimitCapabilities(0) || ::setgroups(account.groups.size(), account.groups.data()) != 0 ||
      ::setresgid(gid, gid, gid) != 0 || ::setresuid(uid, uid, uid) != 0 || !SetCapabilities(0) ||
      ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return false;
  uid_t r = 0, e = 0, s = 0;
  const bool user = ::getresuid(&r, &e, &s) == 0 && r == uid && e == uid && s == uid;
  const bool group = ::getresgid(&r, &e, &s) == 0 && r == gid && e == gid && s == gid;
  errno = EPERM;
  return user && group && ::setuid(0) != 0;
}

bool RefuseCalls() {
  constexpr int kRefused[] = {SYS_init_module,   SYS_finit_module,      SYS_delete_module,
                              SYS_kexec_load,    SYS_kexec_file_load,   SYS_reboot,
                              SYS_swapon,        SYS_swapoff,           SYS_settimeofday,
                              SYS_clock_settime, SYS_open_by_handle_at, SYS_acct};
  constexpr std::size_t kCount = std::size(kRefused);
  constexpr auto kAnswer = [](__u32 error) { return SECCOMP_RET_ERRNO | error; };
  sock_filter program[kCount + 7];
  std::size_t n = 0;
  const auto add = [&](sock_filter instruction) { program[n++] = instruction; };
  add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)));
  // Calls of other ABIs have other numbers.
  add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0));
  add(BPF_STMT(BPF_RET | BPF_K, kAnswer(ENOSYS)));
  add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  add(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, static_cast<__u8>(kCount + 1), 0));  // x32
  for (std::size_t i = 0; i < kCount; ++i)
    add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<__u32>(kRefused[i]),
                 static_cast<__u8>(kCount - i), 0));
  add(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  add(BPF_STMT(BPF_RET | BPF_K, kAnswer(EPERM)));
  const sock_fprog filter{static_cast<unsigned short>(n), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

}  // namespace muster::launcher
