#include "worker/launcher/account.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
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

}  // namespace

Result<Account> FindAccount(const std::string& name) {
  errno = 0;
  const passwd* const entry = ::getpwnam(name.c_str());
  if (entry == nullptr && errno != 0 && errno != ENOENT && errno != ESRCH && errno != EBADF)
    return ErrnoStatus(errno, "look the account '" + name + "' up");
  if (entry == nullptr) return NotFound("this node has no account '" + name + "'");
  Account account{.name = entry->pw_name,
                  .home = entry->pw_dir,
                  .shell = entry->pw_shell,
                  .uid = entry->pw_uid,
                  .gid = entry->pw_gid,
                  .groups = std::vector<gid_t>(NGROUPS_MAX)};
  const auto is_system = [](std::uint32_t id) { return id < kFirstId || id == ~0U; };
  if (is_system(account.uid) || is_system(account.gid))
    return FailedPrecondition("the account '" + name +
                              "' is one of the system's here: its uid or gid is below " +
                              std::to_string(kFirstId));
  int count = NGROUPS_MAX;
  if (::getgrouplist(account.name.c_str(), account.gid, account.groups.data(), &count) < 0)
    return FailedPrecondition("the account '" + name + "' is in too many groups");
  account.groups.resize(static_cast<std::size_t>(count));
  std::erase_if(account.groups, [&](gid_t gid) { return is_system(gid) || gid == account.gid; });
  return account;
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
  constexpr sock_filter kRefuse = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
  std::vector<sock_filter> program = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kArchitecture, 1, 0),  // other ABIs have other numbers
      kRefuse,
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1),  // x32
      kRefuse};
  for (const __u32 call : {SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load,
                           SYS_kexec_file_load, SYS_reboot, SYS_swapon, SYS_swapoff,
                           SYS_settimeofday, SYS_clock_settime, SYS_open_by_handle_at, SYS_acct}) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(kRefuse);
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

}  // namespace muster::launcher
