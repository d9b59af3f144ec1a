#!/bin/sh
set -e

# writing keys and files
mkdir -p -m 700 /run/ringleader/lab/lab
install -m 600 /dev/stdin /run/ringleader/lab/lab/lab.json <<'END_OF_FILE'
{
  "format": 1,
  "spec": {
    "name": "lab",
    "hosts": 2,
    "slots": 2,
    "bandwidth": 8000000000,
    "latency": 0.0,
    "ssh_port": 33,
    "subnet": "10.213.0.0/24",
    "private_tmp": false,
    "tree": {
      "path": "/srv/an image's tree",
      "binds": [
        {
          "source": "/home/me/my code",
          "target": "/code",
          "read_only": true
        },
        {
          "source": "/data",
          "target": "/data",
          "read_only": false
        }
      ]
    },
    "kernel": ""
  }
}
END_OF_FILE
ssh-keygen -q -t ed25519 -N '' -C 'ringleader lab lab' -f /run/ringleader/lab/lab/id
cat /run/ringleader/lab/lab/id.pub >> /run/ringleader/lab/lab/authorized_keys
install -m 644 /dev/stdin /run/ringleader/lab/lab/hostfile <<'END_OF_FILE'
h1 slots=2
h2 slots=2
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/ssh_config <<'END_OF_FILE'
Host h1 10.213.0.1
    HostName 10.213.0.1

Host h2 10.213.0.2
    HostName 10.213.0.2

Host *
    Port 33
    IdentityFile "/run/ringleader/lab/lab/id"
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile "/run/ringleader/lab/lab/known_hosts"
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    PasswordAuthentication no
    KbdInteractiveAuthentication no
    BatchMode yes
    CheckHostIP no
END_OF_FILE
mkdir -p -m 755 /run/ringleader/lab/lab/h1
mkdir -p -m 755 /run/ringleader/lab/lab/h1/run
mkdir -p -m 755 /run/ringleader/lab/lab/h1/sys
ssh-keygen -q -t ed25519 -N '' -C h1 -f /run/ringleader/lab/lab/h1/host_key
sed 's/^/[10.213.0.1]:33,[h1]:33,h1,10.213.0.1 /' /run/ringleader/lab/lab/h1/host_key.pub >> /run/ringleader/lab/lab/known_hosts
install -m 644 /dev/stdin /run/ringleader/lab/lab/h1/sshd_config <<'END_OF_FILE'
Port 33
ListenAddress 10.213.0.1
HostKey "/run/ringleader/lab/lab/h1/host_key"
AuthorizedKeysFile "/run/ringleader/lab/lab/authorized_keys"
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 200:30:400
MaxSessions 200
Subsystem sftp internal-sftp
SetEnv "LANG=C.UTF-8" "PATH=/opt/venv/bin:/usr/bin:/bin" "SHLVL=1" "RINGLEADER_LAB=lab" "OMPI_MCA_mpi_yield_when_idle=1"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h1/hosts <<'END_OF_FILE'
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
10.213.0.1 h1
10.213.0.2 h2
10.213.0.254 node7 lab-head
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h1/boot.sh <<'END_OF_FILE'
set -e
echo h1 > /proc/sys/kernel/hostname
# Copies of other namespaces' mounts would keep those namespaces alive after their end.
if mountpoint -q /run/netns; then umount -n -l /run/netns; fi
mkdir -p /run/ringleader/lab/lab/h1/fs
mount -n -t tmpfs -o mode=755 tmpfs /run/ringleader/lab/lab/h1/fs
cd /run/ringleader/lab/lab/h1/fs
mkdir lower upper work root
chmod 755 upper
mount -n --bind '/srv/an image'"'"'s tree' lower
if ! mount -n -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay root; then
    mount -n --bind lower root
    mount -n -o remount,bind,ro root
    cp -a lower/etc etc
    mount -n --bind etc root/etc
fi
cd root
mkdir -p dev etc proc run sys tmp var/tmp
mount -n -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do : > dev/$node; mount -n --bind /dev/$node dev/$node; done
mkdir dev/pts dev/shm
mount -n -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for stream in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${stream%:*} dev/${stream#*:}; done
for place in dev/shm tmp var/tmp; do mount -n -t tmpfs -o mode=1777 tmpfs $place; done
mount -n -t tmpfs -o mode=755 tmpfs run
mount -n -t sysfs -o ro sysfs sys
if [ -d /sys/fs/cgroup ]; then mount -n --rbind /sys/fs/cgroup sys/fs/cgroup; fi
rm -f etc/hosts etc/hostname
cp /run/ringleader/lab/lab/h1/hosts etc/hosts
echo h1 > etc/hostname
# ssh takes the first value that it finds: how to reach the lab's hosts comes before the tree's own settings.
mkdir -p etc/ssh
printf 'User root
' | cat - /run/ringleader/lab/lab/ssh_config > ../ssh_config
if [ -f etc/ssh/ssh_config ] && [ ! -L etc/ssh/ssh_config ]; then cat etc/ssh/ssh_config >> ../ssh_config; fi
rm -f etc/ssh/ssh_config
cp ../ssh_config etc/ssh/ssh_config
if [ -d '/home/me/my code' ]; then mkdir -p ./code; else mkdir -p ./; : >> ./code; fi
mount -n --bind '/home/me/my code' ./code
mount -n -o remount,bind,ro ./code
if [ -d /data ]; then mkdir -p ./data; else mkdir -p ./; : >> ./data; fi
mount -n --bind /data ./data
mkdir -p run/sshd run/lock ./run/ringleader/lab/lab
mount -n --bind /run/ringleader/lab/lab ./run/ringleader/lab/lab
# The next child is process 1 of the host: when it dies, the kernel kills everything on the host.
exec unshare --pid sh -c "setsid sh /run/ringleader/lab/lab/h1/first.sh >> /run/ringleader/lab/lab/h1/boot.log 2>&1 &"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h1/first.sh <<'END_OF_FILE'
set -e
mount -n -t proc proc proc
mount -n --move . /
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /usr/sbin/sshd -D -f /run/ringleader/lab/lab/h1/sshd_config -E /run/ringleader/lab/lab/h1/sshd.log
END_OF_FILE
mkdir -p -m 755 /run/ringleader/lab/lab/h2
mkdir -p -m 755 /run/ringleader/lab/lab/h2/run
mkdir -p -m 755 /run/ringleader/lab/lab/h2/sys
ssh-keygen -q -t ed25519 -N '' -C h2 -f /run/ringleader/lab/lab/h2/host_key
sed 's/^/[10.213.0.2]:33,[h2]:33,h2,10.213.0.2 /' /run/ringleader/lab/lab/h2/host_key.pub >> /run/ringleader/lab/lab/known_hosts
install -m 644 /dev/stdin /run/ringleader/lab/lab/h2/sshd_config <<'END_OF_FILE'
Port 33
ListenAddress 10.213.0.2
HostKey "/run/ringleader/lab/lab/h2/host_key"
AuthorizedKeysFile "/run/ringleader/lab/lab/authorized_keys"
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UseDNS no
PrintMotd no
PrintLastLog no
MaxStartups 200:30:400
MaxSessions 200
Subsystem sftp internal-sftp
SetEnv "LANG=C.UTF-8" "PATH=/opt/venv/bin:/usr/bin:/bin" "SHLVL=1" "RINGLEADER_LAB=lab" "OMPI_MCA_mpi_yield_when_idle=1"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h2/hosts <<'END_OF_FILE'
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
10.213.0.1 h1
10.213.0.2 h2
10.213.0.254 node7 lab-head
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h2/boot.sh <<'END_OF_FILE'
set -e
echo h2 > /proc/sys/kernel/hostname
# Copies of other namespaces' mounts would keep those namespaces alive after their end.
if mountpoint -q /run/netns; then umount -n -l /run/netns; fi
mkdir -p /run/ringleader/lab/lab/h2/fs
mount -n -t tmpfs -o mode=755 tmpfs /run/ringleader/lab/lab/h2/fs
cd /run/ringleader/lab/lab/h2/fs
mkdir lower upper work root
chmod 755 upper
mount -n --bind '/srv/an image'"'"'s tree' lower
if ! mount -n -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay root; then
    mount -n --bind lower root
    mount -n -o remount,bind,ro root
    cp -a lower/etc etc
    mount -n --bind etc root/etc
fi
cd root
mkdir -p dev etc proc run sys tmp var/tmp
mount -n -t tmpfs -o mode=755 tmpfs dev
for node in null zero full random urandom tty; do : > dev/$node; mount -n --bind /dev/$node dev/$node; done
mkdir dev/pts dev/shm
mount -n -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for stream in 0:stdin 1:stdout 2:stderr; do ln -s /proc/self/fd/${stream%:*} dev/${stream#*:}; done
for place in dev/shm tmp var/tmp; do mount -n -t tmpfs -o mode=1777 tmpfs $place; done
mount -n -t tmpfs -o mode=755 tmpfs run
mount -n -t sysfs -o ro sysfs sys
if [ -d /sys/fs/cgroup ]; then mount -n --rbind /sys/fs/cgroup sys/fs/cgroup; fi
rm -f etc/hosts etc/hostname
cp /run/ringleader/lab/lab/h2/hosts etc/hosts
echo h2 > etc/hostname
# ssh takes the first value that it finds: how to reach the lab's hosts comes before the tree's own settings.
mkdir -p etc/ssh
printf 'User root
' | cat - /run/ringleader/lab/lab/ssh_config > ../ssh_config
if [ -f etc/ssh/ssh_config ] && [ ! -L etc/ssh/ssh_config ]; then cat etc/ssh/ssh_config >> ../ssh_config; fi
rm -f etc/ssh/ssh_config
cp ../ssh_config etc/ssh/ssh_config
if [ -d '/home/me/my code' ]; then mkdir -p ./code; else mkdir -p ./; : >> ./code; fi
mount -n --bind '/home/me/my code' ./code
mount -n -o remount,bind,ro ./code
if [ -d /data ]; then mkdir -p ./data; else mkdir -p ./; : >> ./data; fi
mount -n --bind /data ./data
mkdir -p run/sshd run/lock ./run/ringleader/lab/lab
mount -n --bind /run/ringleader/lab/lab ./run/ringleader/lab/lab
# The next child is process 1 of the host: when it dies, the kernel kills everything on the host.
exec unshare --pid sh -c "setsid sh /run/ringleader/lab/lab/h2/first.sh >> /run/ringleader/lab/lab/h2/boot.log 2>&1 &"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/lab/h2/first.sh <<'END_OF_FILE'
set -e
mount -n -t proc proc proc
mount -n --move . /
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /usr/sbin/sshd -D -f /run/ringleader/lab/lab/h2/sshd_config -E /run/ringleader/lab/lab/h2/sshd.log
END_OF_FILE

# making namespaces and links
ip link add rl-lab mtu 9000 type bridge
ip addr add 10.213.0.254/24 dev rl-lab
ip link set rl-lab addrgenmode none up
ip netns add rl-lab-h1
ip link add rl-lab-1 mtu 9000 type veth peer name eth0 mtu 9000 netns rl-lab-h1
ip link set rl-lab-1 master rl-lab addrgenmode none up
ip -n rl-lab-h1 link set lo up
ip -n rl-lab-h1 addr add 10.213.0.1/24 dev eth0
ip -n rl-lab-h1 link set eth0 addrgenmode none up
ip netns add rl-lab-h2
ip link add rl-lab-2 mtu 9000 type veth peer name eth0 mtu 9000 netns rl-lab-h2
ip link set rl-lab-2 master rl-lab addrgenmode none up
ip -n rl-lab-h2 link set lo up
ip -n rl-lab-h2 addr add 10.213.0.2/24 dev eth0
ip -n rl-lab-h2 link set eth0 addrgenmode none up
tc qdisc replace dev rl-lab-1 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
tc -n rl-lab-h1 qdisc replace dev eth0 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
tc qdisc replace dev rl-lab-2 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
tc -n rl-lab-h2 qdisc replace dev eth0 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
cat >> /etc/hosts <<'END_OF_BLOCK'
# ringleader lab lab: begin
10.213.0.1 h1
10.213.0.2 h2
10.213.0.254 lab-head
# ringleader lab lab: end
END_OF_BLOCK

# starting hosts
nsenter --net=/run/netns/rl-lab-h1 unshare --mount --uts --ipc sh /run/ringleader/lab/lab/h1/boot.sh
nsenter --net=/run/netns/rl-lab-h2 unshare --mount --uts --ipc sh /run/ringleader/lab/lab/h2/boot.sh
