# Made by `ringleader image render` from the recipe horovod-0.11: change that, not this file.
# Horovod 0.11.2 on TensorFlow 1.6.0, CUDA 9.0, NCCL 2.1 and Open MPI 3.0.0, with ssh on port 12345

FROM nvidia/cuda:9.0-devel-ubuntu16.04

# The base knows the keys of its time; NVIDIA signs with others since 2022.
RUN rm -f /etc/apt/sources.list.d/cuda.list /etc/apt/sources.list.d/nvidia-ml.list \
 && apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends apt-transport-https \
         ca-certificates curl gnupg \
 && rm -rf /var/lib/apt/lists/* \
 && curl -fsSL -o /tmp/nvidia.pub \
         https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1604/x86_64/3bf863cc.pub \
 && gpg --batch --yes --dearmor -o /usr/share/keyrings/cuda.gpg /tmp/nvidia.pub \
 && printf '%s\n' \
         'deb [signed-by=/usr/share/keyrings/cuda.gpg] https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1604/x86_64 /' \
         > /etc/apt/sources.list.d/cuda.list \
 && curl -fsSL -o /tmp/nvidia.pub \
         https://developer.download.nvidia.com/compute/machine-learning/repos/ubuntu1604/x86_64/7fa2af80.pub \
 && gpg --batch --yes --dearmor -o /usr/share/keyrings/nvidia-ml.gpg /tmp/nvidia.pub \
 && printf '%s\n' \
         'deb [signed-by=/usr/share/keyrings/nvidia-ml.gpg] https://developer.download.nvidia.com/compute/machine-learning/repos/ubuntu1604/x86_64 /' \
         > /etc/apt/sources.list.d/nvidia-ml.list \
 && rm /tmp/nvidia.pub

RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends --allow-downgrades \
         --allow-change-held-packages build-essential bzip2 ca-certificates curl libcudnn7=7.0.5.15-1+cuda9.0 \
         libibverbs1 libmlx4-1 libmlx5-1 libnccl-dev=2.1.15-1+cuda9.0 libnccl2=2.1.15-1+cuda9.0 librdmacm1 \
         openssh-client openssh-server python-pip python-setuptools python2.7 python2.7-dev \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*

# Scripts of that time say python.
RUN ln -sf /usr/bin/python2.7 /usr/bin/python

# Open MPI 3.0.0. Hosts find each other's orted by its prefix, not by PATH.
RUN mkdir -p /opt/build \
 && curl -fsSL --retry 3 -o /opt/build/openmpi-3.0.0.tar.bz2 \
         https://download.open-mpi.org/release/open-mpi/v3.0/openmpi-3.0.0.tar.bz2 \
 && printf '%s\n' \
         'f699bff21db0125d8cccfe79518b77641cd83628725a1e1ed3e45633496a82d7  /opt/build/openmpi-3.0.0.tar.bz2' \
         > /opt/build/openmpi-3.0.0.tar.bz2.sha256 \
 && sha256sum --check --strict /opt/build/openmpi-3.0.0.tar.bz2.sha256 \
 && mkdir -p /opt/build/openmpi \
 && tar -xf /opt/build/openmpi-3.0.0.tar.bz2 -C /opt/build/openmpi --strip-components 1 \
 && rm -f /opt/build/openmpi-3.0.0.tar.bz2 /opt/build/openmpi-3.0.0.tar.bz2.sha256 \
 && (cd /opt/build/openmpi && ./configure --prefix=/usr/local --enable-orterun-prefix-by-default) \
 && make -C /opt/build/openmpi -j "$(nproc)" all \
 && make -C /opt/build/openmpi install \
 && ldconfig \
 && rm -rf /opt/build

# All is root here, and Open MPI refuses that unless told.
RUN mv /usr/local/bin/mpirun /usr/local/bin/mpirun.real \
 && printf '%s\n' \
         '#!/bin/sh' \
         'exec /usr/local/bin/mpirun.real --allow-run-as-root "$@"' \
         > /usr/local/bin/mpirun \
 && chmod 0755 /usr/local/bin/mpirun \
 && printf '%s\n' \
         'hwloc_base_binding_policy = none' \
         'rmaps_base_mapping_policy = slot' \
         'btl_tcp_if_exclude = lo,docker0' \
         >> /usr/local/etc/openmpi-mca-params.conf

# A machine that builds has no driver: CUDA's stubs stand in while Horovod asks the frameworks.
RUN ldconfig /usr/local/cuda/lib64/stubs

# Containers reach each other on this port, and none is asked who it is.
RUN mkdir -p /var/run/sshd \
 && sed -i 's/^#*Port .*/Port 12345/' /etc/ssh/sshd_config \
 && sed -i /StrictHostKeyChecking/d /etc/ssh/ssh_config \
 && printf '%s\n' \
         '    StrictHostKeyChecking no' \
         '    UserKnownHostsFile /dev/null' \
         '    Port 12345' \
         >> /etc/ssh/ssh_config

RUN /usr/bin/python2.7 -m pip install --no-cache-dir --disable-pip-version-check pip==20.3.4 \
         setuptools==44.1.1 wheel==0.37.1

RUN /usr/bin/python2.7 -m pip install --no-cache-dir --disable-pip-version-check absl-py==0.1.13 \
         astor==0.6.2 backports.weakref==1.0.post1 bleach==1.5.0 enum34==1.1.6 funcsigs==1.0.2 futures==3.2.0 \
         gast==0.2.0 grpcio==1.11.0 html5lib==0.9999999 Markdown==2.6.11 mock==2.0.0 numpy==1.14.6 pbr==4.0.2 \
         protobuf==3.5.2.post1 six==1.11.0 tensorboard==1.6.0 termcolor==1.1.0 Werkzeug==0.14.1

RUN /usr/bin/python2.7 -m pip install --no-cache-dir --disable-pip-version-check tensorflow-gpu==1.6.0

RUN HOROVOD_GPU_ALLREDUCE=NCCL /usr/bin/python2.7 -m pip install --no-cache-dir \
         --disable-pip-version-check horovod==0.11.2

# What shows that the image works: /usr/local/bin/image-selftest.
RUN printf '%s\n' \
         '#!/bin/sh' \
         '# Imports what this image is made of, says its versions; starts its sshd and two ranks where it can.' \
         '# Exits with 0 if all of it works, with 1 otherwise.' \
         'set -u' \
         'PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin' \
         'work=$(mktemp -d)' \
         'failed=0' \
         'check() {' \
         '    what=$1' \
         '    shift' \
         '    if "$@" > "$work/said" 2>&1; then' \
         '        echo "ok      $what: $(tail -n 1 "$work/said")"' \
         '    else' \
         '        echo "FAILED  $what"' \
         '        cat "$work/said"' \
         '        failed=1' \
         '    fi' \
         '}' \
         '# module MODULE VERSION: it loads, and is what the recipe says; 1.3.0+cu92 is 1.3.0.' \
         'module() {' \
         '    check "$1 $2" /usr/bin/python2.7 -c "import $1 as m; v = m.__version__; print(v); assert v.partition(\"+\")[0] == \"$2\""' \
         '}' \
         '# Without a driver CUDA has a stub of libcuda, in some images: enough to import, not to compute.' \
         'stub=/usr/local/cuda/lib64/stubs/libcuda.so' \
         'if ! ldconfig -p | grep -q "libcuda[.]so[.]1" && test -e "$stub"; then' \
         '    ln -s "$stub" "$work/libcuda.so.1"' \
         '    export LD_LIBRARY_PATH="$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"' \
         'fi' \
         'check Python /usr/bin/python2.7 --version' \
         'module tensorflow 1.6.0' \
         'module horovod 0.11.2' \
         'check horovod.tensorflow /usr/bin/python2.7 -c "import horovod.tensorflow"' \
         'port=$(/usr/bin/python2.7 -c "import socket as s; o = s.socket(); o.bind((str(), 0)); print(o.getsockname()[1])")' \
         '"$(command -v sshd)" -D -e -p "$port" -o PidFile=none 2> "$work/sshd" &' \
         'sshd=$!' \
         'tries=0' \
         'until sh -c "ssh-keyscan -T 5 -p $port 127.0.0.1 | grep ." > /dev/null 2>&1 || test $tries -ge 60; do' \
         '    tries=$((tries + 1))' \
         '    sleep 1' \
         'done' \
         'check "sshd on port $port" sh -c "ssh-keyscan -T 5 -p $port 127.0.0.1 | grep ."' \
         'kill "$sshd" 2> /dev/null' \
         'test $failed -eq 0 || cat "$work/sshd"' \
         'check mpirun timeout 60 mpirun -np 2 --oversubscribe hostname' \
         'rm -rf "$work"' \
         'exit "$failed"' \
         > /usr/local/bin/image-selftest \
 && chmod 0755 /usr/local/bin/image-selftest

# The driver's own libcuda comes with the container.
RUN ldconfig
LABEL org.opencontainers.image.title="horovod-0.11" \
      org.opencontainers.image.description="Horovod 0.11.2 on TensorFlow 1.6.0, CUDA 9.0, NCCL 2.1 and Open MPI 3.0.0, with ssh on port 12345" \
      org.opencontainers.image.version="e7b703dc9f7a" \
      org.opencontainers.image.ref.name="horovod-0.11" \
      org.opencontainers.image.base.name="nvidia/cuda:9.0-devel-ubuntu16.04" \
      ringleader.recipe="sha256:e7b703dc9f7aeadaa3b4517b69213f89b0cdefe9dc80fe51a2fb37de047183db" \
      ringleader.version="0.1.0"
EXPOSE 12345
CMD ["/usr/sbin/sshd", "-D", "-p", "12345"]
