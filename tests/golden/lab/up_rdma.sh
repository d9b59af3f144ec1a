#!/bin/sh
set -e

# writing keys and files
mkdir -p -m 700 /run/ringleader/lab/real
install -m 600 /dev/stdin /run/ringleader/lab/real/lab.json <<'END_OF_FILE'
{
  "format": 1,
  "spec": {
    "name": "real",
    "hosts": 2,
    "slots": 1,
    "bandwidth": 8000000000,
    "latency": 0.0,
    "ssh_port": 33,
    "subnet": "10.213.0.0/24",
    "private_tmp": false,
    "tree": null,
    "kernel": "/opt/kernel"
  }
}
END_OF_FILE
ssh-keygen -q -t ed25519 -N '' -C 'ringleader lab real' -f /run/ringleader/lab/real/id
cat /run/ringleader/lab/real/id.pub >> /run/ringleader/lab/real/authorized_keys
install -m 644 /dev/stdin /run/ringleader/lab/real/hostfile <<'END_OF_FILE'
real-h1 slots=1
real-h2 slots=1
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/real/ssh_config <<'END_OF_FILE'
Host real-h1 10.213.0.1
    HostName 10.213.0.1

Host real-h2 10.213.0.2
    HostName 10.213.0.2

Host *
    Port 33
    IdentityFile "/run/ringleader/lab/real/id"
    IdentitiesOnly yes
    IdentityAgent none
    UserKnownHostsFile "/run/ringleader/lab/real/known_hosts"
    GlobalKnownHostsFile /dev/null
    StrictHostKeyChecking yes
    PasswordAuthentication no
    KbdInteractiveAuthentication no
    BatchMode yes
    CheckHostIP no
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/real/init <<'END_OF_FILE'
#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
for module in $($B cat /order); do $B insmod "/modules/$module" || echo "insmod $module failed"; done
for word in $($B cat /proc/cmdline); do case $word in lab_*=*) export "$word";; esac; done
nine=trans=virtio,version=9p2000.L,msize=512000,ro,cache=loose
$B mount -t 9p -o $nine root /lower || echo "no files by 9p"
$B mount -t tmpfs -o mode=755,size=80% upper /upper
$B mkdir /upper/upper /upper/work
layers=lowerdir=/lower,upperdir=/upper/upper,workdir=/upper/work
$B mount -t overlay -o $layers root /new || echo "no overlay"
for place in proc sys dev; do $B mount --move "/$place" "/new/$place"; done
$B mkdir -p /new/dev/shm /new/dev/pts
$B mount -t tmpfs -o mode=1777 shm /new/dev/shm
$B mount -t devpts -o mode=620 pts /new/dev/pts
$B mount -t tmpfs -o mode=755 run /new/run
$B mount -t tmpfs -o mode=1777 tmp /new/var/tmp
$B mkdir -p "/new$lab_dir" /new/run/sshd /new/run/lock
$B mount -o bind "/lower$lab_dir" "/new$lab_dir"
$B cp "/new$lab_dir/$lab_host/hosts" /new/etc/hosts
$B rm -f /new/.dockerenv
echo "$lab_name" >/new/etc/hostname
$B hostname "$lab_name"
$B ip link set lo up
$B ip link set eth0 mtu "$lab_mtu" up
$B ip addr add "$lab_address" dev eth0
exec $B switch_root /new /bin/sh "$lab_dir/$lab_host/guest.sh"
END_OF_FILE
sh -c '"$@" </dev/null' sh /opt/venv/bin/python -P -m ringleader.lab.initramfs /opt/kernel/boot/vmlinuz-6.1.0-56-amd64 /usr/bin/busybox /run/ringleader/lab/real/init /run/ringleader/lab/real/initramfs
mkdir -p -m 755 /run/ringleader/lab/real/h1
mkdir -p -m 755 /run/ringleader/lab/real/h1/run
mkdir -p -m 755 /run/ringleader/lab/real/h1/sys
ssh-keygen -q -t ed25519 -N '' -C real-h1 -f /run/ringleader/lab/real/h1/host_key
sed 's/^/[10.213.0.1]:33,[real-h1]:33,real-h1,10.213.0.1 /' /run/ringleader/lab/real/h1/host_key.pub >> /run/ringleader/lab/real/known_hosts
install -m 644 /dev/stdin /run/ringleader/lab/real/h1/sshd_config <<'END_OF_FILE'
Port 33
ListenAddress 10.213.0.1
HostKey "/run/ringleader/lab/real/h1/host_key"
AuthorizedKeysFile "/run/ringleader/lab/real/authorized_keys"
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
SetEnv "PATH=/opt/venv/bin:/usr/bin:/bin" "SHLVL=1" "RINGLEADER_LAB=real" "OMPI_MCA_mpi_yield_when_idle=1"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/real/h1/hosts <<'END_OF_FILE'
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
10.213.0.1 real-h1
10.213.0.2 real-h2
10.213.0.254 node7.example.org node7 real-head
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/real/h1/boot.sh <<'END_OF_FILE'
set -e
# Copies of other namespaces' mounts would keep those namespaces alive after their end.
if mountpoint -q /run/netns; then umount -n -l /run/netns; fi
cd /
# The next child is process 1 of the host: when it dies, the kernel kills everything on the host.
exec unshare --pid sh -c "setsid sh /run/ringleader/lab/real/h1/first.sh > /run/ringleader/lab/real/h1/boot.log 2>&1 &"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/real/h1/first.sh <<'END_OF_FILE'
exec /usr/bin/qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp 1 -m 1536 \
    -nodefaults -display none -no-reboot -serial stdio \
    -kernel /opt/kernel/boot/vmlinuz-6.1.0-56-amd64 -initrd /run/ringleader/lab/real/initramfs -append 'console=ttyS0 quiet panic=-1 no_timer_check lab_dir=/run/ringleader/lab/real lab_host=h1 lab_name=real-h1 lab_address=10.213.0.1/24 lab_mtu=9000' \
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=root,mount_tag=root \
    -netdev tap,id=net,ifname=tap0,script=no,downscript=no \
    -device virtio-net-pci,netdev=net,mac=52:54:00:00:01:01,host_mtu=9000,romfile= </dev/null
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/real/h1/guest.sh <<'END_OF_FILE'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
ulimit -l unlimited
ulimit -n 1048576
rdma link add rxe0 type rxe netdev eth0
exec /usr/sbin/sshd -D -e -f /run/ringleader/lab/real/h1/sshd_config
END_OF_FILE
mkdir -p -m 755 /run/ringleader/lab/real/h2
mkdir -p -m 755 /run/ringleader/lab/real/h2/run
mkdir -p -m 755 /run/ringleader/lab/real/h2/sys
ssh-keygen -q -t ed25519 -N '' -C real-h2 -f /run/ringleader/lab/real/h2/host_key
sed 's/^/[10.213.0.2]:33,[real-h2]:33,real-h2,10.213.0.2 /' /run/ringleader/lab/real/h2/host_key.pub >> /run/ringleader/lab/real/known_hosts
install -m 644 /dev/stdin /run/ringleader/lab/real/h2/sshd_config <<'END_OF_FILE'
Port 33
ListenAddress 10.213.0.2
HostKey "/run/ringleader/lab/real/h2/host_key"
AuthorizedKeysFile "/run/ringleader/lab/real/authorized_keys"
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
SetEnv "PATH=/opt/venv/bin:/usr/bin:/bin" "SHLVL=1" "RINGLEADER_LAB=real" "OMPI_MCA_mpi_yield_when_idle=1"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/real/h2/hosts <<'END_OF_FILE'
127.0.0.1 localhost
::1 localhost ip6-localhost ip6-loopback
10.213.0.1 real-h1
10.213.0.2 real-h2
10.213.0.254 node7.example.org node7 real-head
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/real/h2/boot.sh <<'END_OF_FILE'
set -e
# Copies of other namespaces' mounts would keep those namespaces alive after their end.
if mountpoint -q /run/netns; then umount -n -l /run/netns; fi
cd /
# The next child is process 1 of the host: when it dies, the kernel kills everything on the host.
exec unshare --pid sh -c "setsid sh /run/ringleader/lab/real/h2/first.sh > /run/ringleader/lab/real/h2/boot.log 2>&1 &"
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/real/h2/first.sh <<'END_OF_FILE'
exec /usr/bin/qemu-system-x86_64 -accel tcg,thread=single -cpu max -smp 1 -m 1536 \
    -nodefaults -display none -no-reboot -serial stdio \
    -kernel /opt/kernel/boot/vmlinuz-6.1.0-56-amd64 -initrd /run/ringleader/lab/real/initramfs -append 'console=ttyS0 quiet panic=-1 no_timer_check lab_dir=/run/ringleader/lab/real lab_host=h2 lab_name=real-h2 lab_address=10.213.0.2/24 lab_mtu=9000' \
    -fsdev local,id=root,path=/,security_model=none,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=root,mount_tag=root \
    -netdev tap,id=net,ifname=tap0,script=no,downscript=no \
    -device virtio-net-pci,netdev=net,mac=52:54:00:00:02:01,host_mtu=9000,romfile= </dev/null
END_OF_FILE
install -m 644 /dev/stdin /run/ringleader/lab/real/h2/guest.sh <<'END_OF_FILE'
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
ulimit -l unlimited
ulimit -n 1048576
rdma link add rxe0 type rxe netdev eth0
exec /usr/sbin/sshd -D -e -f /run/ringleader/lab/real/h2/sshd_config
END_OF_FILE

# making namespaces and links
ip link add rl-real mtu 9000 type bridge
ip addr add 10.213.0.254/24 dev rl-real
ip link set rl-real addrgenmode none up
ip netns add rl-real-h1
ip link add rl-real-1 mtu 9000 type veth peer name eth0 mtu 9000 netns rl-real-h1
ip link set rl-real-1 master rl-real addrgenmode none up
ip -n rl-real-h1 link set lo up
ip -n rl-real-h1 link add br0 mtu 9000 type bridge
ip -n rl-real-h1 tuntap add dev tap0 mode tap
ip -n rl-real-h1 link set eth0 mtu 9000 master br0
ip -n rl-real-h1 link set tap0 mtu 9000 master br0
ip -n rl-real-h1 link set br0 addrgenmode none up
ip -n rl-real-h1 link set tap0 addrgenmode none up
ip -n rl-real-h1 link set eth0 addrgenmode none up
ip netns add rl-real-h2
ip link add rl-real-2 mtu 9000 type veth peer name eth0 mtu 9000 netns rl-real-h2
ip link set rl-real-2 master rl-real addrgenmode none up
ip -n rl-real-h2 link set lo up
ip -n rl-real-h2 link add br0 mtu 9000 type bridge
ip -n rl-real-h2 tuntap add dev tap0 mode tap
ip -n rl-real-h2 link set eth0 mtu 9000 master br0
ip -n rl-real-h2 link set tap0 mtu 9000 master br0
ip -n rl-real-h2 link set br0 addrgenmode none up
ip -n rl-real-h2 link set tap0 addrgenmode none up
ip -n rl-real-h2 link set eth0 addrgenmode none up
tc qdisc replace dev rl-real-1 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
tc -n rl-real-h1 qdisc replace dev eth0 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
tc qdisc replace dev rl-real-2 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
tc -n rl-real-h2 qdisc replace dev eth0 root handle 1: tbf rate 8000000000bit burst 2000000 limit 16000000
cat >> /etc/hosts <<'END_OF_BLOCK'
# ringleader lab real: begin
10.213.0.1 real-h1
10.213.0.2 real-h2
10.213.0.254 node7 real-head
# ringleader lab real: end
END_OF_BLOCK

# starting hosts
nsenter --net=/run/netns/rl-real-h1 unshare --mount --uts --ipc sh /run/ringleader/lab/real/h1/boot.sh
nsenter --net=/run/netns/rl-real-h2 unshare --mount --uts --ipc sh /run/ringleader/lab/real/h2/boot.sh
