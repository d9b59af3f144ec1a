# Made by `ringleader image render` from the recipe all-frameworks-2019: change that, not this file.
# TensorFlow 1.12.0, PyTorch 1.3.0 and MXNet 1.4.1 in one image with CUDA 9.0, Python 3.5 and gcc 4.9

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
         --allow-change-held-packages build-essential bzip2 ca-certificates curl g++-4.9 gcc-4.9 \
         libcudnn7=7.4.1.5-1+cuda9.0 libibverbs1 libmlx4-1 libmlx5-1 libnccl-dev=2.3.7-1+cuda9.0 \
         libnccl2=2.3.7-1+cuda9.0 librdmacm1 openssh-client openssh-server python3-pip python3-setuptools \
         python3.5 python3.5-dev \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/*

# Scripts of that time say python.
RUN ln -sf /usr/bin/python3.5 /usr/bin/python

# This compiler is the one that frameworks and their extensions are compiled with.
RUN update-alternatives --install /usr/bin/gcc gcc /usr/bin/gcc-4.9 100 \
 && update-alternatives --install /usr/bin/g++ g++ /usr/bin/g++-4.9 100

# Open MPI 4.0.0. Hosts find each other's orted by its prefix, not by PATH.
RUN mkdir -p /opt/build \
 && curl -fsSL --retry 3 -o /opt/build/openmpi-4.0.0.tar.bz2 \
         https://download.open-mpi.org/release/open-mpi/v4.0/openmpi-4.0.0.tar.bz2 \
 && printf '%s\n' \
         '2f0b8a36cfeb7354b45dda3c5425ef8393c9b04115570b615213faaa3f97366b  /opt/build/openmpi-4.0.0.tar.bz2' \
         > /opt/build/openmpi-4.0.0.tar.bz2.sha256 \
 && sha256sum --check --strict /opt/build/openmpi-4.0.0.tar.bz2.sha256 \
 && mkdir -p /opt/build/openmpi \
 && tar -xf /opt/build/openmpi-4.0.0.tar.bz2 -C /opt/build/openmpi --strip-components 1 \
 && rm -f /opt/build/openmpi-4.0.0.tar.bz2 /opt/build/openmpi-4.0.0.tar.bz2.sha256 \
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

# Containers reach each other on this port, and none is asked who it is.
RUN mkdir -p /var/run/sshd \
 && sed -i 's/^#*Port .*/Port 22/' /etc/ssh/sshd_config \
 && sed -i /StrictHostKeyChecking/d /etc/ssh/ssh_config \
 && printf '%s\n' \
         '    StrictHostKeyChecking no' \
         '    UserKnownHostsFile /dev/null' \
         '    Port 22' \
         >> /etc/ssh/ssh_config

# Password-less ssh by a key in the image: whoever has the image may enter all of its containers.
RUN install -d -m 0700 /root/.ssh \
 && ssh-keygen -q -t rsa -b 2048 -N '' -f /root/.ssh/id_rsa \
 && cp /root/.ssh/id_rsa.pub /root/.ssh/authorized_keys

RUN /usr/bin/python3.5 -m pip install --no-cache-dir --disable-pip-version-check pip==20.3.4 \
         setuptools==44.1.1 wheel==0.37.1

RUN /usr/bin/python3.5 -m pip install --no-cache-dir --disable-pip-version-check absl-py==0.6.1 \
         astor==0.7.1 gast==0.2.0 grpcio==1.16.1 h5py==2.9.0 Keras-Applications==1.0.6 \
         Keras-Preprocessing==1.0.5 Markdown==3.0.1 numpy==1.14.6 Pillow==6.2.2 certifi==2018.11.29 \
         chardet==3.0.4 graphviz==0.8.4 idna==2.8 requests==2.21.0 urllib3==1.24.3 protobuf==3.6.1 \
         six==1.12.0 tensorboard==1.12.2 termcolor==1.1.0 Werkzeug==0.14.1

RUN /usr/bin/python3.5 -m pip install --no-cache-dir --disable-pip-version-check tensorflow-gpu==1.12.0 \
         mxnet-cu90==1.4.1

RUN /usr/bin/python3.5 -m pip install --no-cache-dir --disable-pip-version-check --find-links \
         https://download.pytorch.org/whl/torch_stable.html torch==1.3.0+cu92 torchvision==0.4.1+cu92

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
         '    check "$1 $2" /usr/bin/python3.5 -c "import $1 as m; v = m.__version__; print(v); assert v.partition(\"+\")[0] == \"$2\""' \
         '}' \
         '# Without a driver CUDA has a stub of libcuda, in some images: enough to import, not to compute.' \
         'stub=/usr/local/cuda/lib64/stubs/libcuda.so' \
         'if ! ldconfig -p | grep -q "libcuda[.]so[.]1" && test -e "$stub"; then' \
         '    ln -s "$stub" "$work/libcuda.so.1"' \
         '    export LD_LIBRARY_PATH="$work${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"' \
         'fi' \
         'check Python /usr/bin/python3.5 --version' \
         'check gcc gcc-4.9 -dumpversion' \
         'module tensorflow 1.12.0' \
         'module torch 1.3.0' \
         'module mxnet 1.4.1' \
         'module torchvision 0.4.1' \
         'port=$(/usr/bin/python3.5 -c "import socket as s; o = s.socket(); o.bind((str(), 0)); print(o.getsockname()[1])")' \
         '"$(command -v sshd)" -D -e -p "$port" -o PidFile=none 2> "$work/sshd" &' \
         'sshd=$!' \
         'tries=0' \
         'until ssh -o BatchMode=yes -o ConnectTimeout=5 -p "$port" root@127.0.0.1 echo logged in > /dev/null 2>&1 || test $tries -ge 60; do' \
         '    tries=$((tries + 1))' \
         '    sleep 1' \
         'done' \
         'check "sshd on port $port" ssh -o BatchMode=yes -o ConnectTimeout=5 -p "$port" root@127.0.0.1 echo logged in' \
         'kill "$sshd" 2> /dev/null' \
         'test $failed -eq 0 || cat "$work/sshd"' \
         'check mpirun timeout 60 mpirun -np 2 --oversubscribe hostname' \
         'rm -rf "$work"' \
         'exit "$failed"' \
         > /usr/local/bin/image-selftest \
 && chmod 0755 /usr/local/bin/image-selftest
LABEL org.opencontainers.image.title="all-frameworks-2019" \
      org.opencontainers.image.description="TensorFlow 1.12.0, PyTorch 1.3.0 and MXNet 1.4.1 in one image with CUDA 9.0, Python 3.5 and gcc 4.9" \
      org.opencontainers.image.version="eb0b2035d39b" \
      org.opencontainers.image.ref.name="all-frameworks-2019" \
      org.opencontainers.image.base.name="nvidia/cuda:9.0-devel-ubuntu16.04" \
      ringleader.recipe="sha256:eb0b2035d39be00172a1ce3df313e268a4dbdfe789f1123f73e499aabbf3fdc4" \
      ringleader.version="0.1.0"
EXPOSE 22
CMD ["/usr/sbin/sshd", "-D", "-p", "22"]
