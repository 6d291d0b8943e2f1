// The private endpoints of everything that the app calls.
param prefix string
param location string
param tags object
param subnetId string
param hostStorageId string
@description('Whether the host storage also holds the task hub of Durable Functions.')
param hubInStorage bool
param payloadStorageId string
param cosmosId string
@description('Empty: the namespace has no private endpoint (Standard).')
param busId string
param vaultId string
param topicId string

var blobZone = 'privatelink.blob.${environment().suffixes.storage}'

var hubTargets = [
  {
    name: 'hub-queues'
    id: hostStorageId
    groupId: 'queue'
    zoneName: 'privatelink.queue.${environment().suffixes.storage}'
  }
  {
    name: 'hub-tables'
    id: hostStorageId
    groupId: 'table'
    zoneName: 'privatelink.table.${environment().suffixes.storage}'
  }
]

var targets = concat(hubInStorage ? hubTargets : [], [
  { name: 'host', id: hostStorageId, groupId: 'blob', zoneName: blobZone }
  { name: 'payloads', id: payloadStorageId, groupId: 'blob', zoneName: blobZone }
  { name: 'cosmos', id: cosmosId, groupId: 'Sql', zoneName: 'privatelink.documents.azure.com' }
  { name: 'vault', id: vaultId, groupId: 'vault', zoneName: 'privatelink.vaultcore.azure.net' }
  { name: 'topic', id: topicId, groupId: 'topic', zoneName: 'privatelink.eventgrid.azure.net' }
])

module endpoint 'endpoint.bicep' = [
  for target in targets: {
    name: 'endpoint-${target.name}'
    params: {
      name: '${prefix}-${target.name}'
      location: location
      tags: tags
      subnetId: subnetId
      targetId: target.id
      groupId: target.groupId
      zoneName: target.zoneName
    }
  }
]

module busEndpoint 'endpoint.bicep' = if (!empty(busId)) {
  name: 'endpoint-bus'
  params: {
    name: '${prefix}-bus'
    location: location
    tags: tags
    subnetId: subnetId
    targetId: busId
    groupId: 'namespace'
    zoneName: 'privatelink.servicebus.windows.net'
  }
}
