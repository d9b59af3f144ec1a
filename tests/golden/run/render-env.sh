# Variables for transports that fit node1
# NCCL would take others too: mlx5_1:1 (there is no /dev/infiniband/uverbs file for it here)
export NCCL_IB_HCA='=mlx5_0:1'
# NCCL 2.18.1 would take entry 0; entry 3 is RoCE v2 with a routable address
export NCCL_IB_GID_INDEX=3
# NCCL 2.18.1 gives up after 7.5 s; 20 is the default since 2.23
export NCCL_IB_TIMEOUT=20
# NCCL_IB_TC left to you: on RoCE it is 4 times the DSCP of the network's lossless class, which the switches decide
